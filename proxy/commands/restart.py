"""`interlock restart`: lets a new process take over from the proxy that runs on a state folder."""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.commands.options import AsJson, ConfigFile, StateDir, state_folder
from proxy.commands.terminal import print_json_lines, printable
from proxy.errors import InterlockError
from proxy.runtime.take_over import knock, receive

EPILOG = """
Examples:
  interlock restart
  interlock restart --state-dir /srv/interlock --timeout 180
"""


def restart(
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait until the new process serves.")] = 120.0,
    state_dir: StateDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Replace the proxy that runs on the state folder, without a connection refused.

    A new process is started as the running one was, with the version and the settings that are installed now.
    Once it serves, the old one lets its connections end (for as long as the setting drain_timeout says).
    If the new one cannot start, the old one goes on.

    Exit code: 0 if the new one serves; 1 if the old one goes on, or none was running.
    """
    folder = state_folder(state_dir, config)
    sock = knock(folder, "restart")
    if sock is None:
        raise InterlockError(f"no proxy runs on {folder}; start one with `interlock up`")
    with sock:
        sock.settimeout(timeout)
        try:
            answer, _ = receive(sock)
        except TimeoutError as error:
            raise InterlockError(
                f"no process serves after {timeout:g} s; `interlock status` shows which runs"
            ) from error
    if "restarted" not in answer:
        why = answer.get("failed") or answer.get("refused") or "the running proxy has ended"
        raise InterlockError(f"the proxy was not replaced: {why}")
    if as_json:
        print_json_lines([{"restarted": True, "pid": answer["restarted"]}])
    else:
        typer.echo(printable(f"Process {answer['restarted']} serves now."))
