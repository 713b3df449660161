"""`interlock policy proposals`: operators look at the rules that agents propose, and decide on them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from proxy.admin_api.client import RemoteRules
from proxy.admin_api.rule_review import RuleReview
from proxy.audit.restored import open_daemon_log
from proxy.commands.options import AsJson, ConfigFile, DatabaseUrl, StateDir, store_settings, takes
from proxy.commands.proposals import TokenFile
from proxy.commands.review import find_token
from proxy.commands.rule_effect import say_effect
from proxy.commands.terminal import LineTable, print_json_lines, print_note, printable, printable_lines, short_id
from proxy.commands.time_format import format_time
from proxy.config import Settings
from proxy.core.approvals import Operator
from proxy.core.model import JsonObject
from proxy.core.rule_proposals import RuleState
from proxy.errors import ConfigError, PolicyError
from proxy.identity.token_file import OperatorTokens
from proxy.store.open_store import open_database
from proxy.store.rule_proposal_store import RuleProposals
from proxy.system import run_file

app = typer.Typer(help="List, show, accept and reject the rules that agents propose.", no_args_is_help=True)
Id = Annotated[str, typer.Argument(help="The proposal's id, or its first 8 or more characters.")]
Reason = Annotated[str, typer.Option("--reason", help="Reason; it is recorded.")]
Beside = Annotated[
    Path | None,
    typer.Option(
        "--policy", help="The policy that the rule would join: a file or folder; default: that of the settings."
    ),
]
Since = Annotated[str, typer.Option(help="Which recorded calls are decided again: 90s, 30m, 12h, 7d, 2w.")]
NONE = "No rules were proposed; agents may propose some where the setting rule_proposals is on."


class OwnRules:
    """RuleReview in this process, for one operator."""

    def __init__(self, review: RuleReview, operator: Operator) -> None:
        self.list = review.list
        self.show = review.show
        self._review = review
        self._operator = operator

    async def accept(self, proposal_id: str, reason: str) -> JsonObject:
        return await self._review.accept(proposal_id, self._operator, reason)

    async def reject(self, proposal_id: str, reason: str) -> JsonObject:
        return await self._review.reject(proposal_id, self._operator, reason)


type Rules = RemoteRules | OwnRules


@dataclass(frozen=True)
class RuleOptions:
    """Where the proposals are, and who asks."""

    token_file: TokenFile = None
    state_dir: StateDir = None
    database_url: DatabaseUrl = None
    config: ConfigFile = None

    def settings(self) -> Settings:
        return store_settings(self.database_url, self.state_dir, self.config)

    def ask[T](self, question: Callable[[Rules], Awaitable[T]]) -> T:
        settings = self.settings()
        token = find_token(settings.state_dir, self.token_file)

        async def ask() -> T:
            async with _opened(settings, token) as rules:
                return await question(rules)

        return asyncio.run(ask())


@contextlib.asynccontextmanager
async def _opened(settings: Settings, token: str) -> AsyncIterator[Rules]:
    # Through the proxy if one runs: it holds the audit log, and two writers of one log are refused.
    running = run_file.read(settings.state_dir)
    if running is not None and running.operator_socket is not None:
        yield RemoteRules(Path(running.operator_socket), token)
        return
    operator = OperatorTokens(settings.state_dir).operator(token)
    if operator is None:
        raise ConfigError("this is not an operator's token of this state folder; see `interlock operators list`")
    database = open_database(settings.postgres, settings.state_dir)
    with contextlib.closing(open_daemon_log(settings)) as sink:
        try:
            yield OwnRules(RuleReview(RuleProposals(database), sink), operator)
        finally:
            await database.close()


@app.command("list", epilog="Example:  interlock policy proposals list --state waiting")
@takes(RuleOptions)
def list_rules(
    options: RuleOptions,
    state: Annotated[list[RuleState] | None, typer.Option("--state", help="Only this state; repeatable.")] = None,
    number: Annotated[int, typer.Option("-n", "--number", min=1, max=1000, help="Most proposals to list.")] = 100,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """List the rules that agents propose, newest first."""
    found = options.ask(lambda rules: rules.list(state or [], number))
    if as_json:
        print_json_lines(found)
        return
    columns = ("proposal", "state", "time (UTC)", "agent", "rule", "why")
    table = LineTable(columns, whole=columns[:3])
    rows = [
        (
            *(short_id(one["proposal_id"], table.console), one["state"], format_time(one["created_at"])),
            *(printable(one[name]) for name in ("agent", "rule_id", "why")),
        )
        for one in found
    ]
    if rows:
        table.print(rows)
    else:
        print_note(NONE)


@app.command(epilog="Example:  interlock policy proposals show 01989f2e-7a31 --policy policies/")
@takes(RuleOptions)
def show(
    options: RuleOptions,
    proposal: Id,
    policy: Beside = None,
    since: Since = "7d",
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Show a proposed rule, which recorded calls it would decide otherwise, and whether it lets more through."""
    found = options.ask(lambda rules: rules.show(proposal))
    if as_json:
        print_json_lines([found])
    else:
        _print_head(found)
        typer.echo(printable_lines(found["text"]))
    say_effect(options.settings(), found, policy, since, as_json=as_json)


@app.command(epilog="Example:  interlock policy proposals accept 01989f2e-7a31 -o policies/notes.yaml")
@takes(RuleOptions)
def accept(
    options: RuleOptions,
    proposal: Id,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A new file for the rule; default: stdout.")
    ] = None,
    policy: Beside = None,
    since: Since = "7d",
    reason: Reason = "",
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Accept a proposed rule: write it to a new file, and record who took it over.

    It is in force only once it stands in the policy. Before it is written, this says what it would change.
    """
    found = options.ask(lambda rules: rules.show(proposal))
    if output is not None and output.exists():
        raise PolicyError(f"{output} is there already; name a new file, and merge the two by hand")
    if not as_json:
        _print_head(found)
    say_effect(options.settings(), found, policy, since, as_json=as_json)
    decided = options.ask(lambda rules: rules.accept(found["proposal_id"], reason))
    if output is not None:
        _write(output, _file_text(decided))
    if as_json:
        print_json_lines([{**decided, "file": str(output) if output else None}])
    elif output is None:
        typer.echo(_file_text(decided), nl=False)
    else:
        print_note(f"Written to {printable(str(output))}. It is in force once that file is part of the policy.")


@app.command(epilog="Example:  interlock policy proposals reject 01989f2e-7a31 --reason 'too wide'")
@takes(RuleOptions)
def reject(
    options: RuleOptions,
    proposal: Id,
    reason: Annotated[str, typer.Option("--reason", help="Reason; it is recorded.")],
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Reject a proposed rule, and say why."""
    decided = options.ask(lambda rules: rules.reject(proposal, reason))
    if as_json:
        print_json_lines([decided])
    else:
        print_note(f"Rejected: {printable(decided['rule_id'])} of {printable(decided['agent'])}.")


def _print_head(found: JsonObject) -> None:
    lines = (
        f"{found['rule_id']}: proposed by {found['agent']} at {format_time(found['created_at'])}, {found['state']}",
        f"The agent says: {found['why']}",
        f"Recorded as {found['call_id']}",
    )
    for line in lines:
        typer.echo(printable(line))


def _file_text(found: JsonObject) -> str:
    who = f"Proposed by {found['agent']}, audit id {found['call_id']}; accepted by {found['operator']}."
    # ASCII, on one line: what the agent calls itself ends no comment.
    return f"# {ascii(printable(who))[1:-1]}\n{found['text']}"


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise PolicyError(f"{file} cannot be written: {error.strerror}") from None
