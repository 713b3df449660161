"""`interlock limits`: what is used of the policy's limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from proxy.commands.options import AsJson, ConfigFile, DatabaseUrl, StateDir
from proxy.commands.terminal import print_json_lines, print_table, printable
from proxy.config import Settings, load_settings
from proxy.core.limits import Usage
from proxy.core.model import JsonObject
from proxy.policy.limit_values import show_amount
from proxy.policy.limits import CompiledLimit
from proxy.policy.load import load_policy
from proxy.policy.text import fold
from proxy.redact import builtin
from proxy.runtime.wiring import open_limits
from proxy.store.open_store import open_database

app = typer.Typer(help="Show what is used of the policy's limits.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Show what is used of the policy's limits."""


@app.command(epilog="Example:  interlock limits show --agent mail-bot")
def show(
    agent: Annotated[str | None, typer.Option(help="Only the budgets of this agent.")] = None,
    policy: Annotated[Path | None, typer.Option(help=Settings.model_fields["policy"].description)] = None,
    state_dir: StateDir = None,
    database_url: DatabaseUrl = None,
    config: ConfigFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Show what is used of each limit now, and whose budget it is. Budgets of which nothing is used are left out."""
    flags = {"policy": policy, "state_dir": state_dir, "database_url": database_url}
    settings = load_settings(flags, config_file=config).settings
    limits = load_policy(settings.policy, builtin()).limits.by_id
    found = asyncio.run(_usage(settings, list(limits.values())))
    rows = [describe(limits[json.loads(one.budget)[0]], one) for one in found]
    if agent is not None:
        rows = [row for row in rows if row["whose"].get("agent") == fold(agent).strip()]
    if as_json:
        print_json_lines(rows)
        return
    print_table(
        ("limit", "whose", "used", "of", "within"),
        [(row["limit"], _whose(row["whose"]), row["used"], row["max"], row["within"] or "at a time") for row in rows],
        "Nothing is used of any limit." if limits else "The policy has no limits.",
    )


async def _usage(settings: Settings, limits: Sequence[CompiledLimit]) -> Sequence[Usage]:
    database = open_database(settings.postgres, settings.state_dir)
    store = open_limits(settings, database)
    try:
        return await store.usage([(f"{json.dumps([limit.id])[:-1]},", limit.seconds) for limit in limits])
    finally:
        await store.close()
        await database.close()


def describe(limit: CompiledLimit, usage: Usage) -> JsonObject:
    """Return what is used of one budget, for people and programs."""
    _, _, *shares = json.loads(usage.budget)
    show = show_amount if limit.kind == "sum" else str
    # A session's name stands by itself behind the shares.
    whose = dict(share.partition("=")[::2] for share in shares if isinstance(share, str) and "=" in share)
    return {
        "limit": limit.id,
        "kind": limit.kind,
        "whose": whose,
        "used": show(usage.used),
        "max": show(limit.most),
        "calls": usage.calls,
        "within": limit.limit.within,
        "newest": usage.newest,
    }


def _whose(whose: dict[str, str]) -> str:
    return printable(", ".join(f"{kind} {name}".strip() for kind, name in whose.items()))
