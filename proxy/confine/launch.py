"""Runs a command confined: three processes besides its own, and it starts only once all is in place.

    outside   forwards connections to the proxy and signals to the agent; ends with the agent's exit code
    keeper    makes the namespaces and waits; when `outside` dies it is killed, and with it all that is inside
    first     process 1 inside: sets up files and network, sends its listening sockets out, starts the agent

Network and mounts belong to a user namespace of `first`; the agent has one of its own
below that, with the user id it had, and no capability over either.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from proxy.confine.forwarder import start_gateway
from proxy.confine.namespace_setup import ListeningSockets, arrange_files, arrange_network
from proxy.confine.seccomp import install_filter
from proxy.sandbox import namespaces
from proxy.sandbox.kernel_calls import join_new_session_keyring
from proxy.sandbox.process_reaper import FORWARDED, NOT_EXECUTABLE, NOT_FOUND, RESTORED, exit_code, reap_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.confine.file_view import FileView

NOT_STARTED = 125
MAX_WORDS = 1 << 12
MAX_SOCKETS = 6
GO = b"go"


@dataclass(frozen=True, slots=True)
class Confinement:
    program: str
    argv: tuple[str, ...]
    environ: dict[str, str]
    proxy: tuple[str, int]
    credentials: tuple[str, str] | None
    files: FileView
    folder: str
    user: int
    group: int
    host_ports: tuple[int, ...] = ()


class ConfinementError(Exception):
    """The agent was not started; the message says why."""


def confine(plan: Confinement, say: Callable[[str], None]) -> int:
    """Run the agent from a process with one thread; return its exit code. Raises ConfinementError if not started."""
    # Where a standard stream was closed, a file of ours would get its number, and the agent would inherit it.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, no child can be waited for
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Before the fork: a signal in between would end us, or be lost to the agent.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    sys.stdout.flush()
    sys.stderr.flush()  # what is in the buffers would be written by every process
    keeper = os.fork()
    if keeper == 0:
        ours.close()
        _keep(plan, theirs, mask)
    theirs.close()
    try:
        with ours:
            agent = _start(plan, ours, keeper, say)
        return _watch(keeper, agent)
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(keeper, signal.SIGKILL)
            os.waitpid(keeper, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _start(plan: Confinement, channel: socket.socket, keeper: int, say: Callable[[str], None]) -> int:
    """Receive the sockets from inside, serve them, and let the agent start; return its pidfd."""
    sockets = [socket.socket(fileno=handle) for handle in _receive(channel, MAX_SOCKETS)]
    third = len(sockets) // 3
    served = ListeningSockets(sockets[:third], sockets[third : 2 * third], sockets[2 * third :])
    _serve_in_thread(plan, served, keeper, say)
    # Only now: an agent that ran before the forwarder would find a network without answers.
    with contextlib.suppress(BrokenPipeError):  # the reason that it sent before is read below
        channel.send(GO)
    return _receive(channel, 1)[0]


def _receive(channel: socket.socket, most: int) -> list[int]:
    """Return descriptors from inside. Raises ConfinementError with the reason that came in their place."""
    words, handles, _, _ = socket.recv_fds(channel, MAX_WORDS, most)
    if not handles:
        raise ConfinementError(words.decode(errors="replace") or "the first process inside ended")
    return handles


def _serve_in_thread(plan: Confinement, sockets: ListeningSockets, keeper: int, say: Callable[[str], None]) -> None:
    """Forward and resolve in a thread for as long as the process lives. Raises ConfinementError where that fails."""
    settled = threading.Event()
    problem: str | None = "it ended"

    async def serve() -> None:
        nonlocal problem
        servers = await start_gateway(plan.proxy, plan.credentials, sockets, say, plan.host_ports)
        problem = None
        settled.set()
        await asyncio.gather(*(server.serve_forever() for server in servers))

    def run() -> None:
        nonlocal problem
        try:
            asyncio.run(serve())
        except Exception as error:  # noqa: BLE001  the boundary of the thread
            problem = repr(error)
            say(f"the forwarder failed: {error!r}")
        finally:
            os.kill(keeper, signal.SIGKILL)  # without a forwarder the agent must not continue
            settled.set()

    threading.Thread(target=run, daemon=True).start()
    settled.wait()
    if problem is not None:
        raise ConfinementError(f"the forwarder failed: {problem}")


def _watch(keeper: int, agent: int) -> int:
    """Forward signals until the keeper ends; return its exit code."""
    while True:
        received = signal.sigwaitinfo({*FORWARDED, signal.SIGCHLD})
        # Not the kernel's own (above 0): a terminal sends Ctrl-C to the agent as well.
        if received.si_signo in FORWARDED and received.si_code <= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(agent, received.si_signo)
        pid, status = os.waitpid(keeper, os.WNOHANG)
        if pid == keeper:
            return exit_code(status)


def _keep(plan: Confinement, channel: socket.socket, mask: set[int]) -> NoReturn:
    """Act as the keeper: enter the namespaces, start the first process in them, and wait for it."""
    code = NOT_STARTED
    try:
        outside = os.getppid()
        join_new_session_keyring()  # ours may hold keys of the person at the terminal
        namespaces.enter_user_namespace(0, 0)  # first: in it, an ordinary user may make the others
        namespaces.enter_private_namespaces()
        namespaces.die_with_parent(outside, NOT_STARTED)
        first = os.fork()
        if first == 0:
            _be_first(plan, channel, mask)
        channel.close()
        code = exit_code(os.waitpid(first, 0)[1])
    except Exception as error:  # noqa: BLE001  the boundary: whatever it is, it is reported and nothing is started
        _send_problem(channel, error)
    finally:
        os._exit(code)


def _be_first(plan: Confinement, channel: socket.socket, mask: set[int]) -> NoReturn:
    """Act as process 1: set everything up, start the agent once its sockets are served, and reap until it ends."""
    code = NOT_STARTED
    try:
        namespaces.die_with_parent(0, NOT_STARTED)
        arrange_files(plan.files, socket.gethostname())
        sockets = arrange_network(plan.host_ports)
        every = (*sockets.forwarder, *sockets.datagrams, *sockets.streams)
        socket.send_fds(channel, [b"sockets"], [each.fileno() for each in every])
        for each in every:
            each.close()
        if channel.recv(MAX_WORDS) == GO:
            code = reap_until(_start_agent(plan, channel, mask))
    except Exception as error:  # noqa: BLE001  as above
        _send_problem(channel, error)
    finally:
        os._exit(code)


def _start_agent(plan: Confinement, channel: socket.socket, mask: set[int]) -> int:
    """Fork the agent; it continues once its pidfd has been sent outside."""
    held, release = os.pipe()
    agent = os.fork()
    if agent == 0:
        os.close(release)
        _be_agent(plan, channel, held, mask)
    os.close(held)
    namespaces.renounce_capabilities()  # only now: a namespace made without CAP_SETFCAP could not name the user we are
    handle = os.pidfd_open(agent)
    socket.send_fds(channel, [b"agent"], [handle])
    os.close(handle)
    channel.close()
    os.write(release, GO)
    os.close(release)
    return agent


def _be_agent(plan: Confinement, channel: socket.socket, held: int, mask: set[int]) -> NoReturn:
    """Become the agent, with nothing left that could undo the confinement."""
    code = NOT_STARTED
    try:
        # Its own user namespace, below the one that owns network and mounts: being root in here gives no power there.
        namespaces.enter_user_namespace(plan.user, plan.group)
        namespaces.renounce_capabilities()
        install_filter()  # after no_new_privs, without which the kernel takes a filter of root alone
        if os.read(held, len(GO)) != GO:
            os._exit(code)
        channel.close()
        namespaces.close_from(3)  # a descriptor of ours may lead outside, such as to the proxy's state
        os.chdir(plan.folder)
        for number in (*FORWARDED, *RESTORED, signal.SIGCHLD):
            if signal.getsignal(number) != signal.SIG_IGN or number in RESTORED:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execve(plan.program, plan.argv, plan.environ)  # noqa: S606  no shell: the words are the caller's own
    except Exception as error:  # noqa: BLE001  as above
        reason = str(error)
        if isinstance(error, OSError):
            reason = (error.strerror or "").lower()
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        os.write(2, f"interlock confine: cannot start {plan.argv[0]!r}: {reason}\n".encode(errors="replace"))
    finally:
        os._exit(code)


def _send_problem(channel: socket.socket, error: Exception) -> None:
    with contextlib.suppress(OSError):
        channel.send(str(error).encode(errors="replace")[:MAX_WORDS] or b"?")
