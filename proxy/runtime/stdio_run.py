"""Runs one stdio MCP server behind the gate: what `interlock run` does."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.system import gc_tuning, import_cache, log_setup  # before all others: it imports structlog without rich

# isort: split
from proxy.config import Settings, load_settings
from proxy.core.ids import new_id
from proxy.core.model import Context
from proxy.errors import ConfigError, StartError, TracingError
from proxy.policy.home import own_home
from proxy.runtime.preload import policy_cache, preload
from proxy.runtime.server_credentials import placeholders_of, with_placeholders
from proxy.runtime.stdio_identity import stdio_principal
from proxy.sandbox.process_reaper import kill_descendants, set_subreaper
from proxy.sandbox.refusal import NOT_CONFINED, SandboxRefusedError
from proxy.sandbox.server_process import Launch, ServerProcess, plan_launch, start_server
from proxy.trace.server_name import server_name as name_server
from proxy.trace.tamper_guard import forbid_inspection
from proxy.trace.tracer import TracePipe, find_strace, under_strace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from proxy.commands.run_flags import RunFlags
    from proxy.policy.decide import CompiledPolicy
    from proxy.runtime.preload import Preloaded
    from proxy.runtime.sandboxed_run import SandboxedRun
    from proxy.runtime.stdio_gate import StdioGate

MAX_NAME = 200
type Say = Callable[[str], None]


class _CannotTraceError(Exception):
    """The server must be traced and cannot be; the reason was printed."""


def run_server(given: RunFlags) -> int:
    """Run a server until it or its client ends; return the exit code. Raises InterlockError where it cannot be run."""
    flags = {name: getattr(given, name) for name in ("policy", "trace", "state_dir", "log_level")}
    loaded = load_settings({**flags, "default_agent": given.agent}, config_file=given.config)
    settings = loaded.settings
    # MCP clients show every line on stderr as an error: only warnings by default.
    level = "warning" if loaded.sources["log_level"] == "default" else settings.log_level
    log_setup.configure(level, "json" if given.as_json else settings.log_format)
    say = _say_json if given.as_json else _say
    # Fail closed: who requires tokens must not get unauthenticated calls through the side door of stdio.
    principal = stdio_principal(settings, os.environ)
    name = given.server_name or name_server(given.command)
    if not name.isprintable() or len(name) > MAX_NAME:
        raise ConfigError(f"the server's name {name[:40]!r} is not allowed; give another with --server-name")
    try:
        launch = plan_launch(given.command, os.environ)
    except StartError as error:
        say(str(error))
        return error.code
    try:
        strace = _strace(settings.trace, name, say)
    except _CannotTraceError:
        return 1
    variables = placeholders_of(settings, name)
    context = Context(principal, name, transport="stdio", session=new_id())
    asked = _AskedSandbox(given.sandbox, given.config, variables)
    # Before the server starts: its orphaned processes come to us and end with us, and it cannot read our memory,
    # where the keys are, through /proc or ptrace.
    set_subreaper()
    forbid_inspection()
    return asyncio.run(_serve(settings, context, launch, strace, say, asked))


@dataclass(frozen=True, slots=True)
class _AskedSandbox:
    """What the command line says of a sandbox, and the variables that the server gets in one, too."""

    flag: str | None
    config: Path | None
    variables: Mapping[str, str]


def _sandbox(
    settings: Settings, policy: CompiledPolicy, server: str, launch: Launch, asked: _AskedSandbox
) -> SandboxedRun | None:
    """Return the server's sandbox; None where neither the policy nor the command line asks for one."""
    if asked.flag is None and not policy.sandboxes:
        return None
    with import_cache.kept:
        from proxy.runtime.sandboxed_run import choose_sandbox, prepare_sandbox  # noqa: PLC0415  most servers have none

    chosen = choose_sandbox(asked.flag, policy, server, launch.argv, policy_cache(settings))
    if chosen is None:
        return None
    return prepare_sandbox(chosen, launch, settings, asked.config, asked.variables)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _say_json(text: str) -> None:
    from proxy.commands.terminal import print_error  # noqa: PLC0415  slow to import, and hardly ever needed

    print_error(text.removeprefix("interlock run: "), as_json=True)


def _strace(trace: str, name: str, say: Say) -> str | None:
    """Return strace's path; None if the server runs untraced."""
    if trace == "off":
        return None
    try:
        return find_strace(os.environ)
    except TracingError as error:
        if trace == "require":
            say(f"interlock run: cannot trace {name!r}, so it is not run: {error}")
            raise _CannotTraceError from error
        say(f"interlock run: {name!r} runs untraced: {error}; use --trace off to hide this message")
        return None


class _Loading:
    """Loads the policy and all that it needs, in a thread, which waits once it has read the policy until `go_on`.

    So the server starts before the policy's detectors are compiled.
    """

    def __init__(self, settings: Settings, home: str | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._policy: asyncio.Future[CompiledPolicy] = self._loop.create_future()
        self._started = threading.Event()
        self._all = asyncio.create_task(asyncio.to_thread(preload, settings, home, read=self._read))
        self._all.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to ask

    def _read(self, policy: CompiledPolicy) -> None:
        if not self._started.is_set():
            self._loop.call_soon_threadsafe(self._policy.set_result, policy)
            self._started.wait()

    async def policy(self) -> CompiledPolicy:
        """Return the policy, which is good, though its detectors may not be. Raises ConfigError or PolicyError."""
        await asyncio.wait((self._policy, self._all), return_when=asyncio.FIRST_COMPLETED)
        return self._policy.result() if self._policy.done() else (await self._all).policy.current()

    def go_on(self) -> None:
        """Let the detectors be compiled."""
        self._started.set()

    async def all(self) -> Preloaded:
        """Return what is loaded. Raises ConfigError or PolicyError."""
        return await self._all


class _ServerStart:
    """Starts the server, once; the traced and sandboxed one where it is."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self.server: ServerProcess | None = None

    async def __call__(self) -> ServerProcess:
        if self.server is None:
            self.server = await start_server(self._launch)
        return self.server


async def _load_gate(box: SandboxedRun | None, start: _ServerStart, loading: _Loading) -> type[StdioGate]:
    """Import the gate, which takes as long as many servers need to start: they start meanwhile.

    Until the gate is there, not a byte goes to the server. One whose files are bound to its calls waits for the gate.
    Raises SandboxRefusedError.
    """
    if box is not None and box.is_supervised:
        loading.go_on()
        return _import_gate()
    await start()
    loading.go_on()
    if box is None:
        return _import_gate()
    # In a thread: the sandbox has to be told when the server may begin.
    importing = asyncio.create_task(asyncio.to_thread(_import_gate))
    try:
        await box.release()
    finally:
        gate = await importing
    return gate


def _import_gate() -> type[StdioGate]:
    with import_cache.kept:
        from proxy.runtime.stdio_gate import StdioGate  # noqa: PLC0415

    # The last large import: what lives now lives to the end, and no collection need look at it.
    gc_tuning.freeze()
    return StdioGate


async def _serve(
    settings: Settings,
    context: Context,
    launch: Launch,
    strace: str | None,
    say: Say,
    asked: _AskedSandbox,
) -> int:
    loading = _Loading(settings, own_home(launch.argv, os.environ))
    try:
        # Before the server starts: the policy may have a sandbox for it.
        box = _sandbox(settings, await loading.policy(), context.server, launch, asked)
        command = box.launch if box is not None else launch
        if box is None or not box.confines:
            command = with_placeholders(command, asked.variables, settings, say)
        return await _serve_in(box, loading, settings, context, command, strace, say)
    finally:
        loading.go_on()  # or its thread would keep the process from ending


async def _serve_in(
    box: SandboxedRun | None,
    loading: _Loading,
    settings: Settings,
    context: Context,
    command: Launch,
    strace: str | None,
    say: Say,
) -> int:
    channel = TracePipe(supervised=box is not None and box.is_supervised) if strace is not None else None
    if strace is not None and channel is not None:
        command = under_strace(command, strace, channel.path, sandboxed=box is not None and box.confines)
    start = _ServerStart(command)
    try:
        gate = await _load_gate(box, start, loading)
        return await gate(settings, context, await loading.all(), say, channel, box).serve(start)
    except SandboxRefusedError as error:
        from proxy.confine.kernel_settings import with_settings  # noqa: PLC0415  hardly ever needed

        say(f"interlock run: {context.server!r} was not started: {with_settings(str(error))}")
        return NOT_CONFINED
    finally:
        if start.server is not None:
            await start.server.clean_up()
        # If the server killed its reaper, its children became ours: end them before their pipes close.
        kill_descendants(os.getpid())
        if channel is not None:
            channel.hide()
        if box is not None:
            box.close()
