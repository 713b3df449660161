"""`interlock exec`: runs a command with the environment that sends it through the proxy."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Annotated, NoReturn

import typer

from proxy.agent.env import change, through_proxy
from proxy.audit.reader import open_audit
from proxy.commands.options import takes
from proxy.commands.proxy_address import (
    NOT_STARTED,
    EndpointOptions,
    FoundProxy,
    Up,
    endpoint,
    find_running,
    placeholders_for,
)
from proxy.commands.terminal import count, format_json, print_error
from proxy.config import Settings
from proxy.core.event import Filter
from proxy.errors import InterlockError, StartError
from proxy.sandbox.process_reaper import PR_SET_PDEATHSIG, RESTORED, prctl, start_code
from proxy.sandbox.server_process import Launch, plan_launch

EPILOG = """
Examples:
  interlock exec -- claude
  interlock exec --up -- claude
  INTERLOCK_AGENT_TOKEN=ilk_… interlock exec --agent build-bot -- python agent.py
  interlock exec -- sh -c 'curl https://mcp.example.com/'
"""
# Signals that are passed on to the command. The keyboard's own go to the command anyway: see `_pass_on`.
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
SI_KERNEL = 0x80
COUNT_SECONDS = 5.0

ExecJson = Annotated[
    bool, typer.Option("--json", help="Print the last line, and errors, as JSON on stderr; stdout is the command's.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not say at the end how many calls were seen.")]


@takes(EndpointOptions)
def exec_(
    options: EndpointOptions,
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The agent's command and arguments, after --.")
    ],
    up: Up = False,  # noqa: FBT002
    quiet: Quiet = False,  # noqa: FBT002
    as_json: ExecJson = False,  # noqa: FBT002
) -> None:
    """Run an agent with the environment variables that send it through the proxy.

    They also make it trust the proxy's CA. NO_PROXY and all INTERLOCK_ variables are removed.
    Signals and streams are the command's own. At the end, one line on stderr says how many calls the
    proxy saw. A program can ignore its environment; with `interlock confine` it cannot bypass the proxy.

    Exit code: the command's; 127 if there is no such program, 126 if it cannot be executed,
    125 if it was not started, for example because no proxy runs.
    """
    try:
        found = find_running(options, up=up)
        environ = change(os.environ, through_proxy(endpoint(options, found)) | placeholders_for(found))
        launch, started = plan_launch(command, environ), time.time()
        status = run_program(launch, environ)
    except (InterlockError, OSError) as error:
        exit_not_started("exec", error, as_json=as_json)
    # The trail of a proxy that --listen names is elsewhere.
    if not quiet and options.listen is None:
        _say_seen(found, started, as_json=as_json)
    exit_like(status)


def run_program(launch: Launch, environ: dict[str, str]) -> int:
    """Run a program with our streams until it ends; return its wait status. Raises StartError if it cannot start."""
    # Blocked before the fork: a signal that comes early waits, and is passed on.
    signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
    problem, answer = os.pipe2(os.O_CLOEXEC)
    # execve throws away what Python still buffers.
    sys.stdout.flush()
    owner, child = os.getpid(), os.fork()
    if child == 0:
        _become(launch, environ, owner, answer)
    os.close(answer)
    with os.fdopen(problem, "rb") as pipe:
        number = pipe.read()
    if number:
        os.waitpid(child, 0)
        error = OSError(int(number), os.strerror(int(number)))
        said = f"cannot start {launch.argv[0]!r}: {(error.strerror or '').lower()}"
        raise StartError(said, start_code(error))
    return _pass_on(child)


def _become(launch: Launch, environ: dict[str, str], owner: int, answer: int) -> NoReturn:
    try:
        # The proxy that --up started ends with its owner, and so must what uses it.
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != owner:
            os._exit(NOT_STARTED)
        for number in RESTORED:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(launch.program, launch.argv, environ)  # noqa: S606  no shell: the words are the caller's own
    except OSError as error:
        os.write(answer, str(error.errno).encode())
    finally:
        os._exit(NOT_STARTED)


def _pass_on(child: int) -> int:
    while True:
        came = signal.sigwaitinfo({*PASSED_ON, signal.SIGCHLD})
        if came.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid == child:
                return status
        # Ctrl-C reaches every process of the terminal's foreground group, so the command has it already.
        elif came.si_code != SI_KERNEL:
            os.kill(child, came.si_signo)


def exit_like(status: int) -> NoReturn:
    """End as a program with this wait status did: with its exit code, or by its signal."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        raise typer.Exit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.kill(os.getpid(), -code)
    raise typer.Exit(128 - code)


def _say_seen(found: FoundProxy, since: float, *, as_json: bool) -> None:
    """Say on stderr how many calls of the agent the proxy saw since then."""
    agent = found.agent or found.settings.default_agent
    calls = denied = None
    try:
        calls, denied = asyncio.run(_count_calls(found.settings, agent, since))
    except (InterlockError, OSError) as error:
        said = f"the calls cannot be counted: {error}"
    else:
        said = f"the proxy saw {count(calls, 'MCP call')} of agent {agent!r}, {denied} denied."
        if calls == 0:
            said = f"the proxy saw no MCP call of agent {agent!r}. If there were any, `interlock doctor` says why."
    if as_json:
        said = format_json({"agent": agent, "calls": calls, "denied": denied, "error": said if calls is None else None})
    else:
        said = f"interlock exec: {said}"
    sys.stderr.write(f"{said}\n")


async def _count_calls(settings: Settings, agent: str, since: float) -> tuple[int, int]:
    async with open_audit(settings.postgres, settings.state_dir, store_timeout=COUNT_SECONDS) as audit:
        stats = await audit.stats(Filter(since=since, agent=agent))
        return sum(tool.calls for tool in stats.tools), sum(tool.denied for tool in stats.tools)


def exit_not_started(name: str, error: Exception, *, as_json: bool) -> NoReturn:
    """Print why a command was not started, and exit with the code that shells use for it."""
    said = str(error).removeprefix("interlock run: ")
    if as_json:
        print_error(said, as_json=True)
    else:
        typer.echo(f"interlock {name}: {said}", err=True)
    raise typer.Exit(error.code if isinstance(error, StartError) else NOT_STARTED) from None
