"""`interlock halt`: stops what an agent, a server or a tool does, now and everywhere."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from proxy.commands.halt_control import HaltOptions
from proxy.commands.options import AsJson, takes
from proxy.commands.terminal import print_note, printable

EPILOG = """
Examples:
  interlock halt --agent mail-bot --reason 'sends to strangers'
  interlock halt --server 'bank.*' --now --reason 'breach'
  interlock halt --reason 'stop everything'
"""


@takes(HaltOptions)
def halt(
    options: HaltOptions,
    reason: Annotated[str, typer.Option(help="Why. It is recorded, and the agent is told.")],
    agent: Annotated[str | None, typer.Option(help="Only this agent; a name or a glob.")] = None,
    server: Annotated[str | None, typer.Option(help="Only calls to this server; a name or a glob.")] = None,
    tool: Annotated[str | None, typer.Option(help="Only calls of this tool; a name or a glob.")] = None,
    now: Annotated[bool, typer.Option("--now", help="Also cut what is under way.")] = False,  # noqa: FBT002
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Halt an agent, a server or a tool, now and everywhere.

    No more calls, on every worker and replica, until `interlock resume`.

    What is given must all fit; with nothing given, everything is halted. Plain requests of a halted agent, and to a
    halted server, are refused too. Calls under way finish, unless --now is given.

    Exit code: 0 if it is in force everywhere; 3 if it is in force here and the shared store could not be told yet.
    """
    made = options.ask(lambda button: button.halt(reason, agent=agent, server=server, tool=tool, cut=now))
    if as_json:
        typer.echo(json.dumps(made))
    else:
        print_note(f"Halted: {printable(made['scope'])}. Resume with: interlock resume {made['halt_id']} --reason '…'")
    if not made["shared"]:
        print_note("The store does not answer: other replicas are told as soon as it does.")
        raise typer.Exit(3)
