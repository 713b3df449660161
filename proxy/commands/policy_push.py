"""`interlock policy push`, `promote`, `abort` and `rollback`: signed steps that every replica follows."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from proxy.commands.options import AsJson, takes, trail_settings
from proxy.commands.policy_tests import run_all_tests
from proxy.commands.publishing import (
    Author,
    Note,
    PublisherOptions,
    Wait,
    followed,
    opened,
    show_replicas,
)
from proxy.commands.replay import recorded_events, show_replay
from proxy.commands.terminal import count, print_json_lines, print_note, printable
from proxy.commands.time_format import parse_age
from proxy.config import Settings
from proxy.core.event import Filter
from proxy.core.rollout import ReplicaState
from proxy.errors import ConfigError, InterlockError, PolicyError
from proxy.policy.replay import Replay
from proxy.policy.replay import replay as decide_again
from proxy.redact import builtin
from proxy.rollout.bundle import Bundle, read_bundle
from proxy.rollout.publisher import Head, Publisher
from proxy.rollout.step import Action, Canary, Step, Version
from proxy.system.package_data import PROFILES, profile_file

EXIT_CHANGES: Final = 3
_VERSION: Final = re.compile(r"v?(\d{1,18})")
PUSH_EPILOG = """
Examples:
  interlock policy push policies/ --note 'no more transfers above 100'
  interlock policy push policies/ --canary 10%
  interlock policy push policies/ --canary 'agents=build-*'
"""
ROLLBACK_EPILOG = """
Examples:
  interlock policy rollback
  interlock policy rollback 4 --note 'v5 blocks the nightly build'
"""


@takes(PublisherOptions)
def push(
    options: PublisherOptions,
    path: Annotated[Path, typer.Argument(help="Policy file, or a folder of policy files.")],
    canary: Annotated[
        str | None,
        typer.Option(metavar="SHARE%|agents=GLOB", help="Only a share of the replicas, or these agents."),
    ] = None,
    profile: Annotated[str | None, typer.Option(help=f"Profile that counts too: {', '.join(PROFILES)}.")] = None,
    since: Annotated[str, typer.Option(help="How far back recorded calls are decided again: 12h, 7d.")] = "7d",
    max_changes: Annotated[
        float, typer.Option(min=0, max=100, help="Percent of those calls that may be decided differently.")
    ] = 10.0,
    force: Annotated[  # noqa: FBT002
        bool, typer.Option("--force", help="Push though more calls change. Checks and tests are never skipped.")
    ] = False,
    note: Note = "",
    wait: Wait = 10.0,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Check, test, replay and sign a policy, and put it in force at every replica.

    The files are read once; what was checked is what is signed. Replicas take it within two seconds, and only with a
    valid signature. An admin's token is needed, and the private key that `interlock policy key` made.

    Exit code: 0 if it was pushed, 1 if the policy is invalid, a test fails or the push is refused, 3 if too many
    recorded calls would be decided differently, or if a replica could not take it.
    """
    settings = options.settings()
    author = options.publisher(settings)
    bundle = read_bundle(path, [_profile(profile)] if profile else [])
    _check(bundle)
    replayed = _replay(bundle, options, since)
    if replayed is not None and not as_json:
        show_replay(replayed)
    _judge(replayed, max_changes, force=force, as_json=as_json)
    step, replicas = asyncio.run(_push(settings, author, bundle, canary, note, wait))
    _say(step, replicas, as_json=as_json, replayed=replayed)


def _profile(name: str) -> Path:
    if name not in PROFILES:
        raise PolicyError(f"there is no profile {name!r}; write {', '.join(PROFILES[:-1])} or {PROFILES[-1]}")
    return profile_file(name)


def _check(bundle: Bundle) -> None:
    """Raise PolicyError unless the policy is valid and its tests pass."""
    results, _ = run_all_tests(bundle.sources(builtin()))
    failed = [result for result in results if not result.passed]
    if failed:
        first = failed[0]
        said = f"{first.rule} test {first.number} expected {first.expected} and got {first.got}"
        raise PolicyError(f"not pushed: {count(len(failed), 'test')} failed; {said}; see `interlock policy test`")


def _replay(bundle: Bundle, options: PublisherOptions, since: str) -> Replay | None:
    """Decide recorded calls by the candidate; None where there are none to be had."""
    earliest = time.time() - parse_age(since)
    policy = bundle.compile("candidate", builtin())
    try:
        settings = trail_settings(options.database_url, options.state_dir, options.config)
    except ConfigError:  # no call was ever recorded
        return decide_again(policy, ())
    try:
        return decide_again(policy, recorded_events(settings, Filter(since=earliest)))
    except InterlockError as error:
        print_note(f"Recorded calls cannot be decided again: {printable(str(error))}")
        return None


def _judge(replayed: Replay | None, most: float, *, force: bool, as_json: bool) -> None:
    """End the command where too much would change, or where nobody knows."""
    if replayed is None:
        why = "recorded calls could not be decided again"
    elif replayed.decided and 100 * len(replayed.changes) > most * replayed.decided:
        share = 100 * len(replayed.changes) / replayed.decided
        why = f"{share:.1f} % of the recorded calls would be decided differently, and --max-changes is {most:g}"
    else:
        return
    if force:
        print_note(f"Forced: {why}.")
        return
    if as_json:
        print_json_lines([{"ok": False, "error": why, "replay": replayed.data() if replayed else None}])
    else:
        typer.echo(f"not pushed: {why}; look at it, then add --force", err=True)
    raise typer.Exit(EXIT_CHANGES)


async def _push(
    settings: Settings, author: Author, bundle: Bundle, canary: str | None, note: str, wait: float
) -> tuple[Step, list[ReplicaState]]:
    async with opened(settings, author.keys) as (publisher, store):
        head = await publisher.head()
        version = Version(head.next_number, bundle.digest)
        who: dict[str, Any] = {"operator": author.operator, "key": author.key, "note": note}
        if canary is None:
            step = await publisher.publish(head, "push", version, bundle=bundle, **who)
        else:
            stable, chosen = _stable(head), await publisher.canary(head, canary, version)
            step = await publisher.publish(head, "canary", stable, canary=chosen, bundle=bundle, **who)
        return step, list(await followed(store, step, wait))


def _stable(head: Head) -> Version:
    if head.step is None:
        raise PolicyError("there is no version yet that a canary could be compared with; push one without --canary")
    if head.canary is not None:
        raise PolicyError(
            f"a canary runs, version {head.canary.version.number}; "
            "end it with `interlock policy promote` or `interlock policy abort`"
        )
    return head.step.stable


def _say(step: Step, replicas: list[ReplicaState], *, as_json: bool, replayed: Replay | None = None) -> None:
    if as_json:
        shown: dict[str, Any] = {"ok": True, **describe(step), "replay": replayed.data() if replayed else None}
        shown["replicas"] = [
            {"replica": one.replica, "step": one.number, "version": one.version, "problem": one.problem}
            for one in replicas
        ]
        print_json_lines([shown])
        everywhere = all(one.number >= step.number for one in replicas)
    else:
        typer.echo(_sentence(step))
        everywhere = show_replicas(step, replicas)
    raise typer.Exit(0 if everywhere else EXIT_CHANGES)


def describe(step: Step) -> dict[str, Any]:
    """Return a step as JSON."""
    canary = step.canary
    return {
        "step": step.number,
        "action": step.action,
        "stable": str(step.stable),
        "canary": None if canary is None else str(canary.version),
        "canary_replicas": list(canary.replicas) if canary else [],
        "canary_agents": list(canary.agents) if canary else [],
        "operator": step.operator,
        "time": step.at,
        "note": step.note,
    }


def _sentence(step: Step) -> str:
    if step.canary is None:
        return f"Step {step.number} ({step.action}): version {step.stable.number} is in force."
    return (
        f"Step {step.number} ({step.action}): version {step.canary.version.number} is in force {whose(step.canary)}, "
        f"version {step.stable.number} for all others."
    )


def whose(canary: Canary) -> str:
    if canary.agents:
        return f"for agents {printable(', '.join(canary.agents))}"
    return f"at {printable(', '.join(canary.replicas))}"


def _publish(
    options: PublisherOptions, action: Action, note: str, wait: float, wanted: str | None = None, *, as_json: bool
) -> None:
    settings = options.settings()
    author = options.publisher(settings)

    async def work() -> tuple[Step, list[ReplicaState]]:
        async with opened(settings, author.keys) as (publisher, store):
            head = await publisher.head()
            stable = await _next_stable(publisher, head, action, wanted)
            step = await publisher.publish(head, action, stable, operator=author.operator, key=author.key, note=note)
            return step, list(await followed(store, step, wait))

    step, replicas = asyncio.run(work())
    _say(step, replicas, as_json=as_json)


async def _next_stable(publisher: Publisher, head: Head, action: Action, wanted: str | None) -> Version:
    """Return the version that is in force after a step. Raises PolicyError."""
    if action == "rollback":
        target = await publisher.previous(head) if wanted is None else await publisher.version(parse_version(wanted))
        # It was good once; a later interlock may read it in another way.
        (await publisher.bundle(target)).sources(builtin())
        return Version(head.next_number, target.digest)
    if head.step is None or head.step.canary is None:
        raise PolicyError("no canary runs; `interlock policy history` shows the steps")
    if head.canary is None and action == "promote":
        assert head.past is not None
        raise PolicyError(f"the canary was ended: {head.past.returned}; push it again if it is good")
    return head.step.canary.version if action == "promote" else head.step.stable


def parse_version(text: str) -> int:
    """Return the number of a version. Raises ConfigError."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text!r} is no version; write a number such as 4, as `interlock policy history` shows it")
    return int(match[1])


@takes(PublisherOptions)
def promote(options: PublisherOptions, note: Note = "", wait: Wait = 10.0, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Put the canary's version in force everywhere."""
    _publish(options, "promote", note, wait, as_json=as_json)


@takes(PublisherOptions)
def abort(options: PublisherOptions, note: Note = "", wait: Wait = 10.0, as_json: AsJson = False) -> None:  # noqa: FBT002
    """End the canary: the stable version is in force everywhere again."""
    _publish(options, "abort", note, wait, as_json=as_json)


@takes(PublisherOptions)
def rollback(
    options: PublisherOptions,
    version: Annotated[str | None, typer.Argument(help="Number of a version; default: the stable one before.")] = None,
    note: Note = "",
    wait: Wait = 10.0,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Put an earlier version in force again, as a new version.

    Replicas never go back to a lower number, so the same policy is signed again under the next one.
    """
    _publish(options, "rollback", note, wait, version, as_json=as_json)
