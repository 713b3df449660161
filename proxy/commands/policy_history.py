"""`interlock policy history` and `interlock policy key`: what was pushed, by whom, and the key that signs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from proxy.commands.options import AsJson, ConfigFile, DatabaseUrl, StateDir, store_settings, takes
from proxy.commands.policy_push import describe, whose
from proxy.commands.publishing import KeyFile, StoreOptions, opened
from proxy.commands.terminal import print_json_lines, print_note, print_table, printable
from proxy.commands.time_format import format_time
from proxy.config import Settings
from proxy.core.rollout import ReplicaState
from proxy.errors import ConfigError
from proxy.fleet.policy_keys import read_trusted, trust_key, untrust_key
from proxy.rollout.keys import default_key_file, make_key
from proxy.rollout.publisher import SEEN_SECONDS, PastStep, Publisher
from proxy.store.rollout_store import Rollout

HISTORY_EPILOG = "Example:  interlock policy history --json"
KEY_EPILOG = """
Examples:
  interlock policy key
  interlock policy key --key /secure/policy-signing.pem --public policy-public.pem
"""


@takes(StoreOptions)
def history(
    options: StoreOptions,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many steps, the newest first.")] = 20,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """List the steps of the roll-out, the newest first, and which one each replica follows.

    Exit code: 0, or 1 if a step has no valid signature or a replica cannot follow.
    """

    async def ask(publisher: Publisher, store: Rollout) -> tuple[Sequence[PastStep], Sequence[ReplicaState]]:
        return await publisher.history(limit), await store.replicas(SEEN_SECONDS)

    steps, replicas = options.ask(ask)
    if as_json:
        print_json_lines(_step_data(one) for one in steps)
        print_json_lines(_replica_data(one) for one in replicas)
    else:
        _show(steps, replicas)
    bad = any(one.problem for one in steps) or any(one.problem for one in replicas)
    raise typer.Exit(1 if bad else 0)


def _step_data(one: PastStep) -> dict[str, Any]:
    said = {"step": one.signed.number} if one.step is None else describe(one.step)
    return {"kind": "step", **said, "key": one.signed.key_id, "problem": one.problem, "returned": one.returned}


def _replica_data(one: ReplicaState) -> dict[str, Any]:
    said = {"replica": one.replica, "step": one.number, "version": one.version}
    return {"kind": "replica", **said, "problem": one.problem, "seen": one.seen_at}


def _show(steps: Sequence[PastStep], replicas: Sequence[ReplicaState]) -> None:
    columns = ("step", "time (UTC)", "action", "stable", "canary", "operator", "note")
    print_table(columns, [_row(one) for one in steps], "No policy was pushed yet; see `interlock policy push --help`.")
    for one in steps:
        if one.problem is not None:
            print_note(f"NOT VALID: {printable(one.problem)}")
        if one.returned is not None:
            print_note(f"The canary of step {one.signed.number} was ended: {printable(one.returned)}")
    if replicas:
        rows = [(printable(one.replica), str(one.number), one.version[:20], one.problem or "") for one in replicas]
        print_table(("replica", "step", "version", "problem"), rows)


def _row(one: PastStep) -> tuple[str, ...]:
    step = one.step
    if step is None:
        return (str(one.signed.number), "", "not valid", "", "", "", "")
    canary = "" if step.canary is None else f"{step.canary.version.number} {whose(step.canary)}"
    who = (printable(step.operator), printable(step.note))
    return (str(step.number), format_time(step.at), step.action, str(step.stable.number), canary, *who)


def key(
    key: KeyFile = None,
    public: Annotated[Path | None, typer.Option(help="Also write the public key there, for policy_keys.")] = None,
    untrust: Annotated[str | None, typer.Option(metavar="KEY", help="Make none; trust this one no more.")] = None,
    state_dir: StateDir = None,
    database_url: DatabaseUrl = None,
    config: ConfigFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Make the key that signs policies, if there is none, and trust it here; print its id.

    In a fleet all replicas trust it from then on. Else give it to every replica, by the setting policy_keys. Keep the
    private key where no agent and no proxy can read it: whoever has it, and may write to the store, decides the policy.
    """
    settings = store_settings(database_url, state_dir, config)
    if untrust is not None:
        _untrust(settings, untrust)
        print_json_lines([{"key": untrust, "trusted": False}]) if as_json else typer.echo(untrust)
        return
    private = key or default_key_file(settings.state_dir)
    try:
        made = make_key(private)
        where = trust_key(settings, made)
        if public is not None:
            public.write_bytes(made.pem())
    except OSError as error:
        raise ConfigError(f"cannot write the key: {error}") from error
    if as_json:
        print_json_lines([{"key": made.key_id, "private": str(private), "public": str(public or where)}])
        return
    typer.echo(made.key_id)
    print_note(f"Private: {printable(str(private))}. Public, for policy_keys: {printable(str(public or where))}.")
    if where.suffix == ".json":
        print_note("All replicas of the fleet trust it.")


def _untrust(settings: Settings, key_id: str) -> None:
    """Take a key away. Raises ConfigError where replicas would then refuse, at their next start, what is in force."""

    async def signer() -> str | None:
        async with opened(settings, read_trusted(settings)) as (publisher, _):
            past = (await publisher.head()).past
            return past.signed.key_id if past is not None else None

    if asyncio.run(signer()) == key_id:
        raise ConfigError(f"the key {key_id} signed the step in force; push with another key first")
    untrust_key(settings, key_id)
