"""`interlock stop`: stops the proxy that runs on a state folder."""

from __future__ import annotations

import os
import select
import signal
from typing import Annotated

import typer

from proxy.commands.options import AsJson, ConfigFile, StateDir, state_folder
from proxy.commands.terminal import print_json_lines, printable
from proxy.errors import InterlockError
from proxy.system import run_file

EPILOG = """
Examples:
  interlock stop
  interlock stop --state-dir /srv/interlock --timeout 120
"""


def stop(
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait until it has ended.")] = 60.0,
    state_dir: StateDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Stop the proxy that runs on the state folder, and wait until it has ended.

    It takes no new calls, lets those under way end (for as long as the setting drain_timeout says),
    and writes what is recorded to disk.

    Exit code: 0 if it has ended, or none was running; 1 if it still runs.
    """
    folder = state_folder(state_dir, config)
    running = run_file.read(folder)
    if running is None:
        _say(as_json, {"stopped": False, "running": False}, f"No proxy runs on {folder}.")
        return
    if not _end(running.pid, timeout):
        raise InterlockError(f"the proxy (process {running.pid}) still runs after {timeout:g} s; wait, or kill it")
    _say(as_json, {"stopped": True, "running": False, "pid": running.pid}, f"Stopped (process {running.pid}).")


def _end(pid: int, timeout: float) -> bool:
    """Ask a process to end; return whether it has ended in time."""
    try:
        # By pidfd, not by pid: the number of a process that has ended may be another program's by now.
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        return bool(select.select([handle], [], [], timeout)[0])
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)


def _say(as_json: bool, report: dict[str, object], text: str) -> None:  # noqa: FBT001
    if as_json:
        print_json_lines([report])
    else:
        typer.echo(printable(text))
