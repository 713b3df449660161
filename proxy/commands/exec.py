"""`interlock exec`: runs a command with the environment that sends it through the proxy."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated, NoReturn

import typer

from proxy.agent.env import change, through_proxy
from proxy.commands.options import takes
from proxy.commands.proxy_address import NOT_STARTED, EndpointOptions, Up, endpoint, find_running
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


@takes(EndpointOptions)
def exec_(
    options: EndpointOptions,
    command: Annotated[list[str], typer.Argument(help="The agent's command and arguments, after --.")],
    up: Up = False,  # noqa: FBT002
) -> None:
    """Run an agent with the environment variables that send it through the proxy.

    They also make it trust the proxy's CA. NO_PROXY and all INTERLOCK_ variables are removed.
    The command replaces this process, so signals, streams and the exit code are its own. A program
    can ignore its environment; with `interlock confine` it cannot bypass the proxy.

    Exit code: the command's; 127 if there is no such program, 126 if it cannot be executed,
    125 if it was not started, for example because no proxy runs.
    """
    try:
        found = find_running(options, up=up)
        exec_program(command, change(os.environ, through_proxy(endpoint(options, found))))
    except (InterlockError, OSError) as error:
        exit_not_started("exec", error)


def exec_program(command: list[str], environ: dict[str, str]) -> NoReturn:
    """Replace this process by `command`. Raises StartError if it cannot."""
    launch = plan_launch(command, environ)
    for number in RESTORED:
        signal.signal(number, signal.SIG_DFL)
    # execve throws away what Python still buffers.
    sys.stdout.flush()
    try:
        os.execve(launch.program, launch.argv, environ)  # noqa: S606  no shell: the words are the caller's own
    except OSError as error:
        raise StartError(f"cannot start {command[0]!r}: {(error.strerror or '').lower()}", start_code(error)) from error


def exit_not_started(name: str, error: Exception) -> NoReturn:
    said = str(error).removeprefix("interlock run: ")
    typer.echo(f"interlock {name}: {said}", err=True)
    raise typer.Exit(error.code if isinstance(error, StartError) else NOT_STARTED) from None
