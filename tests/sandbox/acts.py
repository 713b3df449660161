"""A server that tries everything. The standard library alone: `python acts.py JSON`; prints what became of each act.

JSON has `home`, `root` (may be written), `outside` (is not granted), `readable` (a file that may be read), `service` (a
unix socket), `abstract` (a name), `tcp` and `udp` (ports on loopback), `addresses` of the machine, `pid` (a process
outside), `descriptor` (a number that leads outside), `key` (one in the session keyring), `report` (a file for the
result, in place of stdout). An act that happened says `done`; else it is the error's text.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
GIVEN: dict[str, Any] = json.loads(sys.argv[1]) if __name__ == "__main__" else {}
HOME = Path(GIVEN.get("home", "/nowhere"))
ROOT = Path(GIVEN.get("root", "/nowhere"))
OUTSIDE = Path(GIVEN.get("outside", "/nowhere"))
READABLE = Path(GIVEN.get("readable", "/nowhere"))
PID = int(GIVEN.get("pid", 1))
TMP = Path("/tmp")
DONE = "done"
SECRETS = (
    *(".ssh/id_ed25519", ".aws/credentials", ".config/gcloud/credentials.db", ".claude.json", ".codex/auth.json"),
    *(".bash_history", ".mozilla/firefox/logins.json", ".netrc", ".npmrc", ".pgpass", ".vault-token"),
)
type Act = Callable[[], object]


def check(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def syscall(number: int, *words: Any) -> int:
    # Whole words: of a plain number only half a register would be set, and the kernel reads all of it.
    result = int(LIBC.syscall(number, *(ctypes.c_long(each) if isinstance(each, int) else each for each in words)))
    check(result)
    return result


def mount(source: bytes, kind: bytes | None, flags: int = 0) -> None:
    """Mount something on the folder that may be written, and take it away: later acts need that folder."""
    check(LIBC.mount(source, os.fsencode(ROOT), kind, ctypes.c_ulong(flags), None))
    check(LIBC.umount2(os.fsencode(ROOT), 2))


def first_bytes(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(8)


def leave(path: str) -> None:
    """Make a file where the machine has its own, and take it away."""
    Path(path).write_text("x")
    Path(path).unlink()


def sees_outside() -> None:
    try:
        os.kill(PID, 0)
    except PermissionError:  # it is there, and somebody else's
        return


def reads_memory() -> None:
    """Read a child's memory; by the fork it has the same words at the same place."""
    theirs, ours = ctypes.create_string_buffer(b"words"), ctypes.create_string_buffer(5)
    held, release = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(release)
        os.read(held, 1)
        os._exit(0)
    try:
        here, there = (struct.pack("QQ", ctypes.addressof(each), 5) for each in (ours, theirs))
        syscall(310, child, here, 1, there, 1, 0)
    finally:
        os.close(release)
        os.waitpid(child, 0)


def opens_by_handle() -> None:
    handle, mounted = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136), ctypes.c_int()
    syscall(303, -100, os.fsencode(ROOT), handle, ctypes.byref(mounted), 0)
    syscall(304, os.open(ROOT, os.O_RDONLY), handle, 0)


def sets_clock() -> None:
    seconds, rest = divmod(time.time_ns(), 10**9)  # to what it is: bare, as root, this is the machine's own
    syscall(227, 0, struct.pack("qq", seconds, rest))


def connect(family: int, kind: int, address: Any, said: bytes = b"out") -> None:
    with socket.socket(family, kind) as made:
        made.settimeout(2)
        made.connect(address)
        made.send(said)
        if kind == socket.SOCK_DGRAM:
            made.recv(10)


def run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=10)


def dropped_program(*loader: str) -> None:
    """Write a program into the folder that may be written, and execute it."""
    target = TMP / "dropped"
    shutil.copy("/bin/true", target)
    target.chmod(0o755)
    run(*loader, target)


def memory_program() -> None:
    handle = os.memfd_create("x", 0)
    os.write(handle, Path("/bin/true").read_bytes())
    child = os.fork()
    if child == 0:
        try:
            os.execve(handle, ["true"], {})
        finally:
            os._exit(9)
    if os.waitpid(child, 0)[1]:
        raise PermissionError("not executed")


def in_child(act: Act) -> None:
    child = os.fork()
    if child == 0:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(9)
    if os.waitpid(child, 0)[1]:
        raise PermissionError("refused in the child")


def by_link() -> None:
    link = ROOT / "link"
    link.unlink(missing_ok=True)
    link.symlink_to(HOME / ".ssh" / "id_ed25519")
    link.read_text()


def by_hard_link() -> None:
    (ROOT / "hard").unlink(missing_ok=True)
    os.link(HOME / ".ssh" / "id_ed25519", ROOT / "hard")
    (ROOT / "hard").read_text()


def by_root_of_another() -> None:
    Path(f"/proc/{os.getppid()}/root{HOME}/.ssh/id_ed25519").read_text()


def keeps_keyring() -> None:
    keys = Path("/proc/keys").read_text()
    if GIVEN["key"] not in keys:
        raise PermissionError("the key is not there")


def inherited() -> None:
    os.fstat(int(GIVEN["descriptor"]))


def token() -> None:
    if "SECRET_TOKEN" not in os.environ:
        raise KeyError("SECRET_TOKEN")


def terminal() -> None:
    with open("/dev/tty", "rb+", buffering=0) as made:  # noqa: PTH123
        fcntl.ioctl(made, 0x5412, b"x")


def setuid_file() -> None:
    made = TMP / "suid"
    made.write_text("x")
    made.chmod(0o4755)
    flags = os.statvfs(made).f_flag
    if flags & os.ST_NOSUID:
        raise PermissionError("nosuid")


def raise_limit() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))
    if resource.getrlimit(resource.RLIMIT_CORE) != (1 << 20, 1 << 20):
        raise PermissionError("as it was")


def gain() -> None:
    lines = Path("/proc/self/status").read_text().splitlines()
    if not any(int(line.split()[1], 16) for line in lines if line.startswith("Cap")):
        raise PermissionError("none")


def thread() -> None:
    import threading

    made = threading.Thread(target=lambda: None)
    made.start()
    made.join()


def own_loopback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), 2).close()


def content(path: Path) -> None:
    if not path.read_text():
        raise PermissionError("empty")


def exists(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(path)


SECRET_ACTS: dict[str, Act] = {f"reads {name}": (HOME / name).read_text for name in SECRETS}
HOME_ACTS: dict[str, Act] = {
    "writes .bashrc": lambda: (HOME / ".bashrc").open("a").close(),
    "adds an authorized key": lambda: (HOME / ".ssh" / "authorized_keys").write_text("k"),
    "makes an autostart": lambda: (HOME / ".config" / "x.desktop").write_text("x"),
    "makes a file in the home": lambda: (HOME / "new").write_text("x"),
    "makes a folder in the home": (HOME / "newdir").mkdir,
    "changes a document's mode": lambda: (HOME / "document").chmod(0o600),
    "changes a document's times": lambda: os.utime(HOME / "document", (1, 1)),
    "sets an attribute on a document": lambda: os.setxattr(HOME / "document", "user.x", b"1"),
    "links a document": lambda: (HOME / "linked").symlink_to(HOME / "document"),
    "truncates a document": lambda: os.truncate(HOME / "document", 0),
    "renames a document": lambda: (HOME / "document").rename(HOME / "moved"),
    "deletes a document": (HOME / "other document").unlink,
}
OTHER_FILES: dict[str, Act] = {
    "reads the shadow file": Path("/etc/shadow").read_text,
    "lists another folder": lambda: list(OUTSIDE.iterdir()),
    "sees that a secret exists": lambda: exists(HOME / ".ssh"),
    "writes another folder": lambda: (OUTSIDE / "new").write_text("x"),
    "reads a file by a link": by_link,
    "reads a file by a hard link": by_hard_link,
    "reads above the root": (ROOT / ".." / OUTSIDE.name / "secret").read_text,
    "reads by another process's root": by_root_of_another,
    "reads by its own root": lambda: Path(f"/proc/self/root{OUTSIDE}/secret").read_text(),
    "changes the mode of what it may read": lambda: READABLE.chmod(0o644),
    "changes the owner of what it may read": lambda: os.chown(READABLE, os.getuid(), os.getgid()),
    "sets an attribute on what it may read": lambda: os.setxattr(READABLE, "user.x", b"1"),
    "sets the times of what it may read": lambda: os.utime(READABLE, (1, 1)),
    "writes what it may read": lambda: READABLE.open("a").close(),
    "replaces what it may read": lambda: (ROOT / "mine").rename(READABLE),
    "writes into the system": lambda: leave("/usr/interlock-was-here"),
    "writes into /etc": lambda: leave("/etc/interlock-was-here"),
    "reads a hidden file": lambda: content(ROOT / ".env"),
    "reads a hidden file below": lambda: content(ROOT / "deep" / ".env"),
    "renames a hidden file": lambda: (ROOT / ".env").rename(ROOT / "shown"),
    "makes a device": lambda: os.mknod(ROOT / "device", 0o20666, os.makedev(1, 8)),
    "reads logs": lambda: list(Path("/var/log").iterdir()),
    "makes a spooled job": lambda: leave("/var/spool/interlock-was-here"),
    "keeps a setuid file": setuid_file,
}


PROCESS_ACTS: dict[str, Act] = {
    "sees a process outside": sees_outside,
    "reads process 1's environment": Path("/proc/1/environ").read_bytes,
    "opens process 1's memory": lambda: os.open("/proc/1/mem", os.O_RDONLY),
    "follows process 1's files": lambda: Path("/proc/1/fd/2").readlink(),
    "attaches to process 1": lambda: in_child(lambda: check(LIBC.ptrace(0x4206, 1, None, None))),
    "attaches to its child": lambda: in_child(lambda: check(LIBC.ptrace(0, 0, None, None))),
    "reads another's memory": reads_memory,
    "takes another's descriptor": lambda: syscall(438, os.pidfd_open(os.getppid()), 2, 0),
    "uses an inherited descriptor": inherited,
    "has the launcher's token": token,
    "executes an unlisted program": lambda: run("/usr/bin/id"),
    "executes a dropped program": dropped_program,
    "loads a dropped program": lambda: dropped_program("/lib64/ld-linux-x86-64.so.2"),
    "executes from memory": memory_program,
    "puts characters into the terminal": terminal,
}
KERNEL_ACTS: dict[str, Act] = {
    "mounts": lambda: mount(b"tmpfs", b"tmpfs"),
    "binds the outside": lambda: mount(b"/proc/1/root", None, 0x1000),
    "remounts": lambda: check(LIBC.mount(b"none", b"/", None, ctypes.c_ulong(0x1020), None)),
    "unmounts": lambda: check(LIBC.umount2(b"/dev/shm", 2)),
    "uncovers a hidden file": lambda: check(LIBC.umount2(os.fsencode(ROOT / "deep" / ".env"), 2)),
    "changes its root": lambda: in_child(lambda: os.chroot("/proc/1/root")),
    "pivots its root": lambda: check(LIBC.pivot_root(b".", b".")),
    "opens a mount": lambda: syscall(428, -100, b"/", 1),
    "makes a user namespace": lambda: in_child(lambda: os.unshare(os.CLONE_NEWUSER)),
    "makes a mount namespace": lambda: in_child(lambda: os.unshare(os.CLONE_NEWNS)),
    "clones into a namespace": lambda: syscall(56, 0x10000000 | 17, None, None, None, None) or os._exit(0),
    "clones by clone3": lambda: syscall(435, bytes(88), 88) or os._exit(0),
    "enters a namespace": lambda: in_child(lambda: os.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY))),
    "makes a BPF map": lambda: syscall(321, 0, struct.pack("IIII", 2, 4, 4, 1) + bytes(56), 72),
    "counts performance": lambda: syscall(
        298, struct.pack("II", 1, 112) + bytes(32) + b"\x60" + bytes(71), 0, -1, -1, 0
    ),
    "handles page faults": lambda: syscall(323, 1),
    "sets up io_uring": lambda: syscall(425, 8, bytes(120)),
    "loads a module": lambda: syscall(313, 0, b"", 0),
    "loads a kernel": lambda: syscall(246, 0, 0, None, 0),
    "reads its session keyring": lambda: syscall(250, 11, -3, None, 0, 0),
    "adds a key": lambda: syscall(248, b"user", b"x", b"y", 1, -3),
    "requests a key": lambda: syscall(249, b"user", b"x", None, 0),
    "lists the launcher's key": keeps_keyring,
    "opens by handle": opens_by_handle,
    "watches file systems": lambda: syscall(300, 0x200, 0),
    "sets the host name": lambda: socket.sethostname(socket.gethostname()),
    "sets the clock": sets_clock,
    "reads the kernel log": lambda: syscall(103, 3, bytes(16), 16),
    "writes core_pattern": lambda: Path("/proc/sys/kernel/core_pattern").open("a").close(),
    "counts the machine's pages": lambda: check(len(first_bytes("/proc/kpagecount")) - 8),
    "presses sysrq": lambda: Path("/proc/sysrq-trigger").open("a").close(),
    "raises its own file limit": raise_limit,
    "gains a capability": gain,
}


NETWORK_ACTS: dict[str, Act] = {
    "reaches the host's loopback": lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", GIVEN["tcp"])),
    "reaches it by IPv6": lambda: connect(socket.AF_INET6, socket.SOCK_STREAM, ("::1", GIVEN["tcp"])),
    "reaches it by 0.0.0.0": lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", GIVEN["tcp"])),
    "reaches it by the host's name": lambda: connect(
        socket.AF_INET, socket.SOCK_STREAM, (socket.gethostname(), GIVEN["tcp"])
    ),
    "sends a datagram": lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", GIVEN["udp"])),
    "connects to a service": lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, GIVEN["service"]),
    "connects to an abstract service": lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + GIVEN["abstract"]),
    "opens a raw socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    "opens a packet socket": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0),
    "opens a vsock": lambda: socket.socket(40, socket.SOCK_STREAM),
    "opens an audit socket": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9),
    "opens a crypto socket": lambda: socket.socket(38, socket.SOCK_SEQPACKET),
    **{
        f"reaches {address}": (
            lambda address=address: connect(  # type: ignore[misc]
                socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, (address, GIVEN["tcp"])
            )
        )
        for address in GIVEN.get("addresses", ())
    },
}
# Refused to everybody by some kernels and containers; whatever else stands in the tables happens without a sandbox.
REFUSED_BARE = frozenset(
    (
        *("uncovers a hidden file", "pivots its root", "loads a module", "loads a kernel", "presses sysrq"),
        *("opens by handle", "sets the clock", "reads the kernel log", "counts performance", "opens a crypto socket"),
        *("opens a vsock", "makes a BPF map", "handles page faults", "sets up io_uring", "writes core_pattern"),
        "counts the machine's pages",
        *("puts characters into the terminal", "makes a device"),
    )
)
ACTS: dict[str, dict[str, Act]] = {
    "secrets": SECRET_ACTS,
    "home": HOME_ACTS,
    "files": OTHER_FILES,
    "processes": PROCESS_ACTS,
    "kernel": KERNEL_ACTS,
    "network": NETWORK_ACTS,
}
HONEST: dict[str, Act] = {
    "reads what it may": lambda: content(READABLE),
    "writes the root": lambda: (ROOT / "made").write_text("x"),
    "renames in the root": lambda: (ROOT / "made").rename(ROOT / "renamed"),
    "deletes in the root": (ROOT / "renamed").unlink,
    "makes folders in the root": lambda: (ROOT / "a" / "b").mkdir(parents=True, exist_ok=True),
    "writes temporary files": lambda: (TMP / "t").write_text("x"),
    "starts a listed program": lambda: run("/bin/true"),
    "makes a pair of sockets": socket.socketpair,
    "makes a thread": thread,
    "serves on its own loopback": own_loopback,
    "reads its own status": Path("/proc/self/status").read_text,
    "uses /dev/null": lambda: Path("/dev/null").write_text("x"),
    "lets the kernel end its child first": lambda: Path("/proc/self/oom_score_adj").write_text("500"),
    "uses shared memory": lambda: os.memfd_create("x", os.MFD_CLOEXEC | 0x8),
    "sees its own processes": lambda: os.kill(os.getpid(), 0),
}


def attempt(act: Act) -> str:
    try:
        act()
    except Exception as error:  # noqa: BLE001  whatever stops it
        return f"{type(error).__name__}: {error}"
    return DONE


if __name__ == "__main__":
    found = {kind: {name: attempt(act) for name, act in acts.items()} for kind, acts in ACTS.items()}
    # Last: the acts above must not have broken what is allowed.
    found["honest"] = {name: attempt(act) for name, act in HONEST.items()}
    if "report" in GIVEN:  # for launchers whose stdout is not the server's own
        Path(GIVEN["report"]).write_text(json.dumps(found))
    else:
        sys.stdout.write(json.dumps(found))
