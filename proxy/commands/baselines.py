"""`interlock baselines`: the prompts that tools are meant to be called under."""

from __future__ import annotations

import asyncio
import datetime as dt
import getpass
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy.commands.options import AsJson, ConfigFile, DatabaseUrl, StateDir, store_settings
from proxy.config import Settings
from proxy.core.proposals import Baseline, ProposalStore
from proxy.errors import ConfigError
from proxy.store.open_store import open_store
from proxy.twophase.scoring import normal_prompt, prompt_hash

app = typer.Typer(help="Prompts that tools are meant to be called under.", no_args_is_help=True)
Tool = Annotated[str, typer.Argument(help="The tool's name, as its server gives it.")]
Server = Annotated[str, typer.Option("--server", help="The server it is for; every server where not given.")]


@app.command("set", epilog="Example:  interlock baselines set transfer_funds --prompt-file prompts/payments.txt")
def set_baseline(
    tool: Tool,
    server: Server = "",
    prompt: Annotated[str | None, typer.Option("--prompt", help="The prompt itself.")] = None,
    prompt_file: Annotated[
        typer.FileBinaryRead | None, typer.Option("--prompt-file", help="File with the prompt; - for stdin.")
    ] = None,
    database_url: DatabaseUrl = None,
    state_dir: StateDir = None,
    config: ConfigFile = None,
) -> None:
    """Set a tool's baseline prompt; its hash alone is kept."""
    if (prompt is None) == (prompt_file is None):
        raise ConfigError("give the prompt by one of --prompt and --prompt-file")
    text = _decoded(prompt_file.read()) if prompt_file else prompt or ""
    if not tool or not normal_prompt(text):
        raise ConfigError("a baseline needs the name of a tool and a prompt that is not empty")
    baseline = Baseline(server, tool, prompt_hash(text), time.time(), _who())
    asyncio.run(_set(store_settings(database_url, state_dir, config), baseline))
    _say(f"Baseline of {_named(server, tool)}: {baseline.prompt_hash}")


@app.command("list", epilog="Example:  interlock baselines list --json")
def list_baselines(
    database_url: DatabaseUrl = None,
    state_dir: StateDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """List the baselines: tool, server, hash, when and by whom."""
    found = asyncio.run(_list(store_settings(database_url, state_dir, config)))
    if as_json:
        for each in found:
            typer.echo(json.dumps(_row(each)))
        return
    table = Table("tool", "server", "prompt hash", "set", "by", box=None, header_style="bold", pad_edge=False)
    for each in found:
        when = f"{dt.datetime.fromtimestamp(each.set_at, dt.UTC):%Y-%m-%d %H:%M}"
        table.add_row(_plain(each.tool), _plain(each.server) or "(all)", each.prompt_hash, when, _plain(each.set_by))
    Console(emoji=False).print(table if found else "No baselines yet: interlock baselines set TOOL --prompt TEXT")


@app.command(epilog="Example:  interlock baselines remove transfer_funds")
def remove(
    tool: Tool,
    server: Server = "",
    database_url: DatabaseUrl = None,
    state_dir: StateDir = None,
    config: ConfigFile = None,
) -> None:
    """Remove a tool's baseline: prompt_drift is absent from then on."""
    if not asyncio.run(_remove(store_settings(database_url, state_dir, config), server, tool)):
        raise ConfigError(
            f"there is no baseline of {_named(server, tool)}; `interlock baselines list` shows those there are"
        )
    _say(f"Removed: {_named(server, tool)}")


@asynccontextmanager
async def _store(settings: Settings) -> AsyncIterator[ProposalStore]:
    store = open_store(settings.postgres, settings.state_dir)
    try:
        yield store
    finally:
        await store.close()


async def _set(settings: Settings, baseline: Baseline) -> None:
    async with _store(settings) as store:
        await store.set_baseline(baseline)


async def _list(settings: Settings) -> Sequence[Baseline]:
    async with _store(settings) as store:
        return await store.baselines()


async def _remove(settings: Settings, server: str, tool: str) -> bool:
    async with _store(settings) as store:
        return await store.remove_baseline(server, tool)


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the prompt is not UTF-8 (byte {error.start}); save it as UTF-8") from error


def _who() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return ""


def _row(each: Baseline) -> dict[str, str | float | None]:
    return {
        "tool": each.tool,
        "server": each.server or None,
        "prompt_hash": each.prompt_hash,
        "set_at": each.set_at,
        "set_by": each.set_by,
    }


def _named(server: str, tool: str) -> str:
    return f"{tool!r} on {server!r}" if server else f"{tool!r} on every server"


def _say(text: str) -> None:
    Console(stderr=True, soft_wrap=True, emoji=False).print(escape(text))


def _plain(name: str) -> str:
    """Spell a name so that a terminal shows all of it and obeys none."""
    return escape(json.dumps(name)[1:-1])
