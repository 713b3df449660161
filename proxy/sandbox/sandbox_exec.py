"""Shuts itself into a sandbox, then becomes the server. Run as a script: `python -I -S sandbox_exec.py SPEC CHANNEL`.

SPEC is a descriptor with the plan (`proxy/sandbox/plan.py`), CHANNEL a socket to the owner. Whatever fails ends the
start: the owner is told why over CHANNEL, the exit code is 125, and the server's program is never executed. Where all
is set up the owner is told what holds, and the program is executed once the owner has said so.

Three processes: the first waits outside, the second is process 1 of the namespaces, the third becomes the server.
Without user namespaces the first becomes the server itself. Imports little, because the server's client waits for it:
neither json nor array nor contextlib, which import half of the standard library.
"""

from __future__ import annotations

import _socket
import marshal
import os
import resource
import signal
import sys
from _json import encode_basestring_ascii as quoted

if __name__ == "__main__":
    # Isolated (-I, -S) as it is, Python knows no folder of ours; the one this file was run from is.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120

from proxy.sandbox import landlock, loopback, syscall_filter
from proxy.sandbox.kernel_calls import SandboxError, join_new_session_keyring, renounce_capabilities
from proxy.sandbox.mount_view import View
from proxy.sandbox.process_reaper import (
    FORWARDED,
    NOT_EXECUTABLE,
    NOT_FOUND,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    RESTORED,
    exit_code,
    prctl,
    reap_until,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

NOT_CONFINED = 125
GO = b"go"
MAX_REPORT = 1 << 16
NAMESPACES = os.CLONE_NEWNET | os.CLONE_NEWNS | os.CLONE_NEWIPC | os.CLONE_NEWPID | os.CLONE_NEWUTS
# Executed in vain, to mark in a trace where the set-up ends and the server begins.
MARK = "/.interlock/the-server-begins-here"
ACCESS = {
    "read": landlock.READ,
    "write": landlock.WRITE,
    "exec": landlock.EXECUTE | landlock.READ,
    "own": landlock.WRITE | landlock.EXECUTE,
    "device": landlock.READ_FILE | landlock.WRITE_FILE | landlock.IOCTL_DEV,
    "proc": landlock.READ | landlock.WRITE_FILE | landlock.TRUNCATE,
}
LIMITS = {
    "memory": (resource.RLIMIT_DATA,),
    "cpu": (resource.RLIMIT_CPU,),
    "processes": (resource.RLIMIT_NPROC,),
    "files": (resource.RLIMIT_NOFILE,),
    "file_size": (resource.RLIMIT_FSIZE,),
}


class Launcher:
    """One start. `report` collects what holds."""

    def __init__(self, spec: dict[str, Any], channel: _socket.socket) -> None:
        self.spec = spec
        self.channel = channel
        if spec["supervisor"] is not None:
            # Now: once the server's view is built, our own files are out of sight.
            from proxy.sandbox import notify_filter  # noqa: PLC0415  few servers need it

            self.notify_filter = notify_filter
        self.report: dict[str, Any] = {"landlock": landlock.version(), "namespaces": False, "keyring": False}

    def run(self) -> int:
        """Become the server, or its keeper; return the exit code of the server that was kept."""
        self.report["keyring"] = join_new_session_keyring()
        self._check_support()
        if not self._enter_namespaces():
            self._become_server()
        signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
        first = os.fork()
        if first == 0:
            self._be_first(os.getppid())
        self.channel.close()
        return _keep(first)

    def _check_support(self) -> None:
        if self.spec["require"] and not self.report["landlock"]:
            raise SandboxError("this kernel has no Landlock, or it is switched off (kernel 5.13 or newer has it)")
        if not self.report["landlock"] and not self.spec["namespaces"]:
            raise SandboxError("this system has neither Landlock nor user namespaces: nothing could be held")

    def _enter_namespaces(self) -> bool:
        if not self.spec["namespaces"]:
            return False
        try:
            _enter_user_namespace(0, 0)
        except OSError as error:
            if os.geteuid() != 0:  # real root may make the others without one
                return self._without_namespaces(f"a user namespace: {error.strerror}")
        try:
            os.unshare(NAMESPACES)
        except OSError as error:
            return self._without_namespaces(f"mount, network and process namespaces: {error.strerror}")
        self.report["namespaces"] = True
        return True

    def _without_namespaces(self, reason: str) -> bool:
        if self.spec["require"] or not self.report["landlock"]:
            raise SandboxError(reason)
        self.report["missing"] = reason
        return False

    def _be_first(self, outside: int) -> NoReturn:
        """Act as process 1: build the view, fork the server, reap until it ends."""
        code = NOT_CONFINED
        try:
            _die_with_parent(outside)
            loopback.bring_up()
            self._open_ways_out()
            self._build_view()
            server = os.fork()
            if server == 0:
                self._become_server()
            self.channel.close()
            renounce_capabilities()
            prctl(PR_SET_DUMPABLE, 0)  # the server runs as the same user: it must not look into us
            _forward_signals(server)
            _let_go_of_streams()
            code = reap_until(server)
        except (SandboxError, OSError, RuntimeError) as error:
            _tell(self.channel, error)
        finally:
            os._exit(code)

    def _build_view(self) -> None:
        view = View()
        view.build(**self.spec["view"])
        self.report["proc"] = view.own_proc
        self.report["memfd"] = view.memfd_exec_off
        if self.spec["require"] and not view.own_proc:
            raise SandboxError("mounting a /proc of its own: the kernel refuses it in this container")

    def _open_ways_out(self) -> None:
        ports = self.spec["ports"]
        if ports is None:
            return
        loopback.route_everything_here()
        if self.spec["firewall"] is not None:
            from proxy.sandbox.namespaces import NamespaceError, run_program  # noqa: PLC0415  slow, and rarely needed

            try:
                run_program("nft", "-f", "-", stdin=self.spec["firewall"])
            except NamespaceError as error:
                raise SandboxError(str(error)) from error
        made = loopback.listen(ports, self.spec["dns_port"])
        handles = b"".join(each.fileno().to_bytes(4, sys.byteorder) for each in made)
        self.channel.sendmsg([b'{"sockets": true}'], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handles)])
        for each in made:
            each.close()

    def _become_server(self) -> NoReturn:
        """Drop everything that could undo the sandbox, wait for the owner, and execute the program."""
        code = NOT_CONFINED
        try:
            if self.report["namespaces"]:
                self._enter_own_user_namespace()
            self._limit()
            confined = self.report["namespaces"]
            renounce_capabilities(bounding=confined)  # sets no_new_privs, which Landlock and seccomp need
            if self.report["landlock"]:
                rules = [(path, ACCESS[kind]) for path, kind in self.spec["rules" if confined else "rules_outside"]]
                landlock.restrict(rules, abi=self.report["landlock"], no_tcp=not confined)
            self._call_supervisor()  # first: a filter forbids later ones to have a listener
            listener = self._filter_calls(inet=confined)
            self._send_report(listener)
            if self.channel.recv(len(GO)) != GO:
                os._exit(code)
            self.channel.close()
            _restore_signals()
            os.closerange(3, 1 << 30)
            code = _execute(self.spec)
        except (SandboxError, OSError, RuntimeError) as error:
            _tell(self.channel, error)
        finally:
            os._exit(code)

    def _filter_calls(self, *, inet: bool) -> int | None:
        """Refuse system calls; return the listener that is told of each, where there can be one."""
        memfd_exec_off = bool(self.report.get("memfd"))
        # A process can have one listener: a supervisor's, or this.
        listener = None
        if self.spec["supervisor"] is None:
            listener = syscall_filter.install_told(unix=self.spec["unix"], inet=inet, memfd_exec_off=memfd_exec_off)
        if listener is None:
            syscall_filter.install(unix=self.spec["unix"], inet=inet, memfd_exec_off=memfd_exec_off)
        return listener

    def _send_report(self, listener: int | None) -> None:
        self.report["told"] = listener is not None
        handles = [] if listener is None else [listener.to_bytes(4, sys.byteorder)]
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, each) for each in handles]
        self.channel.sendmsg([_as_json(self.report)], rights)
        if listener is not None:
            os.close(listener)  # who has it could answer for itself

    def _call_supervisor(self) -> None:
        """Let a supervisor answer for every file from here on, where some tools are bound to their arguments."""
        if self.spec["supervisor"] is not None:
            listener = self.notify_filter.install_notify_filter(unix_sockets=self.spec["unix"])
            self.notify_filter.send_listener(_socket.socket(fileno=self.spec["supervisor"]), listener)

    def _enter_own_user_namespace(self) -> None:
        # Below the one that owns network and mounts: being root in here gives no power there.
        try:
            _enter_user_namespace(self.spec["user"], self.spec["group"])
        except OSError:
            if os.geteuid() != 0 or self.spec["require"]:
                raise

    def _limit(self) -> None:
        # 1, not 0: with 0 the kernel still starts the machine's own handler of crashes, as root and outside.
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
        for name, value in self.spec["limits"].items():
            for kind in LIMITS[name]:
                hard = resource.getrlimit(kind)[1]
                most = value if hard == resource.RLIM_INFINITY else min(value, hard)
                resource.setrlimit(kind, (most, most))


def _enter_user_namespace(user: int, group: int) -> None:
    outer_user, outer_group = os.geteuid(), os.getegid()
    os.unshare(os.CLONE_NEWUSER)
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {outer_user} 1")
    _write("/proc/self/gid_map", f"{group} {outer_group} 1")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(text)


def _die_with_parent(parent: int) -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() not in (0, parent):  # it died before the line above; seen from in here its number is 0
        os._exit(NOT_CONFINED)


def _forward_signals(child: int) -> None:
    def forward(number: int, _frame: object) -> None:
        try:
            os.kill(child, number)
        except ProcessLookupError:
            return

    for number in FORWARDED:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)


def _let_go_of_streams() -> None:
    # While we hold them too, the owner would not see the server close them.
    for stream in (0, 1):
        os.close(stream)
    os.closerange(3, 1 << 30)


def _keep(first: int) -> int:
    """Forward signals to process 1 until it ends; return its exit code."""
    prctl(PR_SET_DUMPABLE, 0)
    _forward_signals(first)
    _let_go_of_streams()
    return exit_code(os.waitpid(first, 0)[1])


def _restore_signals() -> None:
    for number in (*FORWARDED, *RESTORED, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _execute(spec: dict[str, Any]) -> int:
    """Execute the server's program; return a shell's exit code where that fails."""
    try:
        os.chdir(spec["folder"])
    except OSError:
        os.chdir("/")  # its folder is not granted
    environ = spec["environ"]
    _mark_trace()
    try:
        os.execve(spec["program"], spec["argv"], environ)  # noqa: S606  no shell: the words are the client's own
    except OSError as error:
        name, why = spec["argv"][0], (error.strerror or str(error)).lower()
        os.write(2, f"interlock run: cannot start {name!r} in the sandbox: {why}\n".encode("utf-8", "replace"))
        return NOT_FOUND if isinstance(error, FileNotFoundError | NotADirectoryError) else NOT_EXECUTABLE


def _mark_trace() -> None:
    try:
        os.execve(MARK, [MARK], {})  # noqa: S606
    except OSError:
        return  # there is no such program


def _tell(channel: _socket.socket, error: Exception) -> None:
    try:
        channel.send(_as_json({"error": str(error)})[:MAX_REPORT])
    except OSError:
        return  # the owner is gone


def _as_json(values: dict[str, Any]) -> bytes:
    """Return texts, numbers and truths as a JSON object."""
    words = (quoted(value) if isinstance(value, str) else str(value).lower() for value in values.values())
    return f"{{{', '.join(f'{quoted(name)}: {word}' for name, word in zip(values, words, strict=True))}}}".encode()


def main(argv: list[str]) -> int:
    with open(int(argv[0]), "rb") as file:  # noqa: PTH123
        spec = marshal.loads(file.read())  # noqa: S302  our owner's, by the same interpreter; nobody else has the file
    channel = _socket.socket(fileno=int(argv[1]))
    os.set_inheritable(channel.fileno(), False)
    try:
        return Launcher(spec, channel).run()
    except (SandboxError, OSError, RuntimeError) as error:
        _tell(channel, error)
        return NOT_CONFINED


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
