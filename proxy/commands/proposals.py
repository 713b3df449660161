"""`interlock proposals`: operators list, approve and reject what agents propose."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from proxy.commands.options import AsJson, ConfigFile, DatabaseUrl, StateDir, store_settings, takes
from proxy.commands.review import Review, find_token, open_review
from proxy.commands.terminal import (
    COLOURS,
    LineTable,
    count,
    print_json_lines,
    print_note,
    print_pairs,
    printable,
    short_id,
)
from proxy.commands.time_format import format_time
from proxy.core.approvals import NextCalls
from proxy.core.model import JsonObject
from proxy.core.proposals import State
from proxy.twophase.review import MAX_NEXT_CALLS, MAX_NEXT_SECONDS

app = typer.Typer(help="List, approve and reject what agents propose.", no_args_is_help=True)
Id = Annotated[str, typer.Argument(help="The proposal's id, or its first 8 or more characters.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="File with the operator's token; default: INTERLOCK_OPERATOR_TOKEN, then the first operator's."),
]
Reason = typer.Option("--reason", help="Reason; it is recorded.")
NO_PROPOSALS = "No proposals; a call that a rule with `action: two_phase` matches becomes one."
NO_STANDING = "No standing approvals; `interlock proposals approve ID --next 5` gives one."


@dataclass(frozen=True)
class ReviewOptions:
    token_file: TokenFile = None
    state_dir: StateDir = None
    database_url: DatabaseUrl = None
    config: ConfigFile = None

    def ask[T](self, question: Callable[[Review], Awaitable[T]]) -> T:
        settings = store_settings(self.database_url, self.state_dir, self.config)
        token = find_token(settings.state_dir, self.token_file)

        async def ask() -> T:
            async with open_review(settings, token) as review:
                return await question(review)

        return asyncio.run(ask())


@app.command("list", epilog="Example:  interlock proposals list --state pending")
@takes(ReviewOptions)
def list_proposals(
    options: ReviewOptions,
    state: Annotated[list[State] | None, typer.Option("--state", help="Only this state; repeatable.")] = None,
    number: Annotated[int, typer.Option("-n", "--number", min=1, max=1000, help="Most proposals to list.")] = 100,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """List proposals, newest first."""
    found = options.ask(lambda review: review.list(state or [], number))
    if as_json:
        print_json_lines(found)
    else:
        _print_list(found)


@app.command(epilog="Example:  interlock proposals show 01989f2e-7a31")
@takes(ReviewOptions)
def show(options: ReviewOptions, proposal: Id, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Show a proposal: the call, its score, the agent, and the time left."""
    found = options.ask(lambda review: review.show(proposal))
    if as_json:
        print_json_lines([found])
    else:
        _print_one(found)


@app.command(epilog="Example:  interlock proposals approve 01989f2e-7a31 --reason 'invoice 4711'")
@takes(ReviewOptions)
def approve(
    options: ReviewOptions,
    proposal: Id,
    reason: Annotated[str, Reason] = "",
    next_calls: Annotated[
        int | None, typer.Option("--next", min=1, max=MAX_NEXT_CALLS, help="Also approve so many more calls like it.")
    ] = None,
    within: Annotated[
        float, typer.Option(min=1, max=MAX_NEXT_SECONDS, help="With --next: for so many seconds.")
    ] = 3600,
    vary: Annotated[
        list[str] | None,
        typer.Option(help="With --next: an argument that may have other values; repeatable. Others must be equal."),
    ] = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Approve a proposal; with --next, also the next calls like it (`interlock proposals standing` lists these)."""
    if next_calls is None and vary:
        raise typer.BadParameter("--vary needs --next")
    like_it = NextCalls(next_calls, within, tuple(vary or ())) if next_calls is not None else None
    _print_decided(options.ask(lambda review: review.approve(proposal, reason, like_it)), as_json=as_json)


@app.command(epilog="Example:  interlock proposals standing --json")
@takes(ReviewOptions)
def standing(
    options: ReviewOptions,
    number: Annotated[int, typer.Option("-n", "--number", min=1, max=1000, help="Most to list.")] = 100,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """List approvals that stand for the next calls, newest first."""
    found = options.ask(lambda review: review.list_standing(number))
    if as_json:
        print_json_lines(found)
        return
    columns = ("standing approval", "state", "left", "until (UTC)", "operator", "calls", "may vary")
    table = LineTable(columns, whole=columns[:4])
    rows = [
        (
            short_id(one["standing_id"], table.console),
            one["state"],
            f"{one['remaining']} of {one['granted']}",
            format_time(one["expires_at"]),
            printable(one["operator"]),
            f"{_call(one)} for {printable(one['principal'])}",
            printable(", ".join(one["vary"])),
        )
        for one in found
    ]
    if rows:
        table.print(rows)
    else:
        typer.echo(NO_STANDING)


@app.command(epilog="Example:  interlock proposals revoke 01989f2e-7a31 --reason 'done'")
@takes(ReviewOptions)
def revoke(
    options: ReviewOptions,
    standing_id: Annotated[str, typer.Argument(help="The standing approval's id, or its proposal's.")],
    reason: Annotated[str, Reason] = "",
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Revoke a standing approval; it lets no more calls through."""
    revoked = options.ask(lambda review: review.revoke_standing(standing_id, reason))
    if as_json:
        print_json_lines([revoked])
        return
    left = f"{count(revoked['remaining'], 'call')} {'was' if revoked['remaining'] == 1 else 'were'} left"
    print_note(f"Revoked: {printable(revoked['standing_id'])}; {left}.")


@app.command(epilog="Example:  interlock proposals reject 01989f2e-7a31 --reason 'wrong account'")
@takes(ReviewOptions)
def reject(
    options: ReviewOptions,
    proposal: Id,
    reason: Annotated[str, Reason],
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Reject a proposal, or withdraw an approval that was not used yet."""
    _print_decided(options.ask(lambda review: review.reject(proposal, reason)), as_json=as_json)


def _print_list(found: Iterable[JsonObject]) -> None:
    columns = ("proposal", "state", "left", "score", "agent", "call")
    table = LineTable(columns, whole=columns[:3])
    rows = [
        (
            short_id(one["proposal_id"], table.console),
            Text(one["state"], COLOURS.get(one["state"], "")),
            _left(one),
            _score(one),
            printable(one["principal"]),
            _call(one),
        )
        for one in found
    ]
    if rows:
        table.print(rows)
    else:
        typer.echo(NO_PROPOSALS)


def _print_one(one: JsonObject) -> None:
    print_pairs((name, value) for name, value in _lines(one) if value)
    typer.echo("arguments (masked):")
    typer.echo(json.dumps(one["arguments"], indent=1))
    if last := one["last_approved"]:
        typer.echo(f"last approved call of this tool, {_when(last['at'])} by {printable(last['operator'])}:")
        typer.echo(json.dumps(last["arguments"], indent=1))


def _lines(one: JsonObject) -> Iterable[tuple[str, str]]:
    yield "proposal", printable(one["proposal_id"])
    yield "state", one["state"]
    yield "call", _call(one)
    yield "agent", printable(one["principal"])
    if one["people"] > 1:
        names = ", ".join(printable(given["operator"]) for given in one["approved_by"])
        yield "approvals", f"{one['approvals']} of {one['people']}{': ' + names if names else ''}"
    yield "rule", f"{printable(one['rule'])} (approval: {one['approval']}, policy {printable(one['policy_version'])})"
    yield "score", _score(one)
    yield "signals", ", ".join(f"{printable(name)} {value:.3f}" for name, value in one["signals"].items())
    yield "absent", ", ".join(f"{printable(name)} ({printable(why)})" for name, why in one["absent"].items())
    yield "waits for", printable(one["reason"])
    yield "proposed", _when(one["created_at"])
    yield "expires", f"{_when(one['expires_at'])}{', in ' + left if (left := _left(one)) else ''}"
    if one["operator"]:
        why = f": {printable(one['operator_reason'])}" if one["operator_reason"] else ""
        yield "decided", f"by {printable(one['operator'])}, {_when(one['operator_at'])}{why}"
    if commit := one["commit"]:
        outcome = commit["outcome"] or "outcome unknown (still running, or the proxy was killed)"
        yield "committed", f"{_when(commit['at'])}: {outcome}, audit id {printable(commit['call_id'])}"
    yield "audit id", printable(one["call_id"])


def _print_decided(decided: JsonObject, *, as_json: bool) -> None:
    if as_json:
        print_json_lines([decided])
        return
    what = f"{_call(decided)} for {printable(decided['principal'])}"
    left = f"; the agent has {_left(decided)} to commit" if decided["state"] == State.APPROVED else ""
    if decided["state"] == State.PENDING:
        left = f"; {decided['approvals']} of {decided['people']} people have approved"
    print_note(f"{decided['state'].capitalize()}: {printable(decided['proposal_id'])} ({what}){left}.")


# Names come from agents and servers: `printable` keeps them from driving the operator's terminal.
def _call(one: JsonObject) -> str:
    return f"{printable(one['tool'])} of {printable(one['server'])}"


def _score(one: JsonObject) -> str:
    score = one["composite_score"]
    return "none" if score is None else f"{score:.3f}"


def _left(one: JsonObject) -> str:
    if one["seconds_left"] is None:
        return ""
    minutes, seconds = divmod(int(one["seconds_left"]), 60)
    return f"{minutes}m {seconds}s" if minutes else f"{seconds}s"


def _when(seconds: Any) -> str:
    return f"{format_time(seconds)} UTC"
