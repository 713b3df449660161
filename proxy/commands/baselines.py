"""`interlock baselines`: the prompts that tools are expected to be called under."""

from __future__ import annotations

import asyncio
import getpass
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from proxy.commands.options import AsJson, store_settings, takes
from proxy.commands.terminal import escaped, print_json_lines, print_note, print_table
from proxy.commands.time_format import format_time
from proxy.config import Settings
from proxy.core.proposals import Baseline, ProposalStore
from proxy.errors import ConfigError
from proxy.store.open_store import open_store
from proxy.twophase.scoring import normal_prompt, prompt_hash

app = typer.Typer(help="Set the prompts that tools are expected to be called under.", no_args_is_help=True)
Tool = Annotated[str, typer.Argument(help="The tool's name, as its server lists it.")]
Server = Annotated[str, typer.Option("--server", help="The tool's server; default: every server.")]


@app.command("set", epilog="Example:  interlock baselines set transfer_funds --prompt-file prompts/payments.txt")
@takes(store_settings)
def set_baseline(
    settings: Settings,
    tool: Tool,
    server: Server = "",
    prompt: Annotated[str | None, typer.Option("--prompt", help="The prompt itself.")] = None,
    prompt_file: Annotated[
        typer.FileBinaryRead | None, typer.Option("--prompt-file", help="File with the prompt; - for stdin.")
    ] = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Set a tool's baseline prompt; only its hash is stored."""
    if (prompt is None) == (prompt_file is None):
        raise ConfigError("give the prompt with either --prompt or --prompt-file")
    try:
        text = prompt_file.read().decode("utf-8") if prompt_file else prompt or ""
    except UnicodeDecodeError as error:
        raise ConfigError(f"the prompt is not UTF-8 (byte {error.start}); save it as UTF-8") from error
    if not tool or not normal_prompt(text):
        raise ConfigError("a baseline needs a tool's name and a prompt that is not empty")
    # A prompt may contain secrets, and comparing needs only the hash of its normal form.
    baseline = Baseline(server, tool, prompt_hash(text), time.time(), _who())
    _on_store(settings, lambda store: store.set_baseline(baseline))
    if as_json:
        print_json_lines([_data(baseline)])
    else:
        print_note(f"Baseline of {_named(server, tool)}: {baseline.prompt_hash}")


@app.command("list", epilog="Example:  interlock baselines list --json")
@takes(store_settings)
def list_baselines(settings: Settings, as_json: AsJson = False) -> None:  # noqa: FBT002
    """List the baselines with their hash, date and author."""
    found = _on_store(settings, lambda store: store.baselines())
    if as_json:
        print_json_lines(map(_data, found))
        return
    rows = [
        (escaped(b.tool), escaped(b.server) or "(all)", b.prompt_hash, format_time(b.set_at), escaped(b.set_by))
        for b in found
    ]
    empty = "No baselines yet; `interlock baselines set TOOL --prompt TEXT` sets one."
    print_table(("tool", "server", "prompt hash", "set (UTC)", "by"), rows, empty)


@app.command(epilog="Example:  interlock baselines remove transfer_funds")
@takes(store_settings)
def remove(settings: Settings, tool: Tool, server: Server = "", as_json: AsJson = False) -> None:  # noqa: FBT002
    """Remove a tool's baseline; the signal prompt_drift is absent from then on."""
    if not _on_store(settings, lambda store: store.remove_baseline(server, tool)):
        raise ConfigError(f"there is no baseline of {_named(server, tool)}; `interlock baselines list` shows them all")
    if as_json:
        print_json_lines([{"tool": tool, "server": server or None, "removed": True}])
    else:
        print_note(f"Removed: {_named(server, tool)}")


def _on_store[T](settings: Settings, use: Callable[[ProposalStore], Awaitable[T]]) -> T:
    async def run() -> T:
        store = open_store(settings.postgres, settings.state_dir)
        try:
            return await use(store)
        finally:
            await store.close()

    return asyncio.run(run())


def _data(baseline: Baseline) -> dict[str, Any]:
    return asdict(baseline) | {"server": baseline.server or None}


def _who() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return ""


def _named(server: str, tool: str) -> str:
    return f"{tool!r} on {server!r}" if server else f"{tool!r} on every server"
