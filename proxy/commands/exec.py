"""`interlock exec`: a command whose environment leads through the proxy."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated, NoReturn

import typer

from proxy.agent.env import change, through_proxy
from proxy.commands.options import ConfigFile, StateDir
from proxy.commands.proxy_address import (
    NOT_STARTED,
    Agent,
    CaFolder,
    Listen,
    ProxyOptions,
    TokenFile,
    Up,
    endpoint,
    find_running,
)
from proxy.errors import InterlockError, StartError
from proxy.sandbox.process_reaper import RESTORED, start_code
from proxy.sandbox.server_process import plan_launch

EPILOG = """
Examples:

  interlock exec -- claude

  interlock exec --up -- claude

  INTERLOCK_AGENT_TOKEN=ilk_… interlock exec --agent build-bot -- python agent.py

  interlock exec -- sh -c 'curl https://mcp.example.com/'
"""


def exec_(
    command: Annotated[list[str], typer.Argument(help="The agent's command and its arguments, after --.")],
    listen: Listen = None,
    ca_folder: CaFolder = None,
    agent: Agent = None,
    token_file: TokenFile = None,
    up: Up = False,  # noqa: FBT002
    state_dir: StateDir = None,
    config: ConfigFile = None,
) -> None:
    """Run an agent with an environment that sends its programs through the proxy.

    It lets them trust the proxy's certificates too. The command takes the place of
    this one: signals, streams and the exit code are its own. NO_PROXY and
    whatever is Interlock's own are taken out of its environment. A program may
    ignore its environment; `interlock confine` leaves it no choice.

    Exit code: the command's; 127 where there is no such program, 126 where it cannot
    be executed; 125 where it was not started, such as when no proxy runs.
    """
    try:
        options = ProxyOptions(listen, ca_folder, agent, token_file, state_dir, config, up)
        become(command, change(os.environ, through_proxy(endpoint(options, find_running(options)))))
    except (InterlockError, OSError) as error:
        refuse("exec", error)


def become(command: list[str], environ: dict[str, str]) -> NoReturn:
    """Go on as `command`. Raises StartError where that cannot be."""
    launch = plan_launch(command, environ)
    for number in RESTORED:
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    try:
        os.execve(launch.program, launch.argv, environ)  # noqa: S606  no shell: the words are the caller's own
    except OSError as error:
        raise StartError(f"cannot start {command[0]!r}: {(error.strerror or '').lower()}", start_code(error)) from error


def refuse(name: str, error: Exception) -> NoReturn:
    """Say why an agent was not started, and end as shells do, or with the code for that."""
    said = str(error).removeprefix("interlock run: ")
    typer.echo(f"interlock {name}: {said}", err=True)
    raise typer.Exit(error.code if isinstance(error, StartError) else NOT_STARTED) from None
