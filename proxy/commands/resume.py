"""`interlock resume`: ends halts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from proxy.commands.halt_control import HaltOptions, StopButton
from proxy.commands.options import AsJson, takes
from proxy.commands.terminal import print_json_lines, print_note, printable
from proxy.core.model import JsonObject
from proxy.errors import ConfigError

EPILOG = """
Examples:
  interlock resume --agent mail-bot --reason 'fixed'
  interlock resume --all --reason 'false alarm'
"""


@takes(HaltOptions)
def resume(
    options: HaltOptions,
    reason: Annotated[str, typer.Option(help="Why. It is recorded.")],
    halt: Annotated[list[str] | None, typer.Argument(help="Ids of halts, as `interlock halts` lists them.")] = None,
    agent: Annotated[str | None, typer.Option(help="The halts of exactly this agent.")] = None,
    server: Annotated[str | None, typer.Option(help="The halts of exactly this server.")] = None,
    tool: Annotated[str | None, typer.Option(help="The halts of exactly this tool.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every halt.")] = False,  # noqa: FBT002
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """End halts.

    Those named, those of exactly this scope, or all. Without any of these, the only one there is.

    Exit code: 1 where none fits, or the store does not answer: then what is halted stays so.
    """
    scope = {"agent": agent, "server": server, "tool": tool}

    async def end(button: StopButton) -> Sequence[JsonObject]:
        chosen = choose(await button.in_force(), halt or [], scope, every=every)
        return await button.resume(reason, chosen)

    ended = options.ask(end)
    if as_json:
        print_json_lines(ended)
        return
    for one in ended:
        print_note(f"Resumed: {printable(one['scope'])} (halted by {printable(one['operator'])}).")


def choose(
    found: Sequence[JsonObject], ids: Sequence[str], scope: dict[str, str | None], *, every: bool
) -> Sequence[str]:
    """Return the ids of the halts to end. Raises ConfigError where it is not clear which are meant."""
    if ids:
        return ids
    known = [one["halt_id"] for one in found]
    if every:
        return known
    if any(scope.values()):
        fitting = [one["halt_id"] for one in found if all(one[name] == value for name, value in scope.items())]
        if not fitting:
            raise ConfigError("there is no halt of exactly this scope; `interlock halts` lists them")
        return fitting
    if len(known) != 1:
        raise ConfigError(f"there are {len(known)} halts; name one, or give --all (`interlock halts` lists them)")
    return known
