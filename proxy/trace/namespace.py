"""Leaves this process, and what it starts, no way out: namespaces with one loopback, and a filesystem to read.

For a process of its own with one thread; nothing of this can be undone. Inside,
every address is local; of the filesystem only a private home and copies of the
temporary folders can be written; sockets through which something outside could
be asked to act are covered, and of devices there are only those that do nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

PRIVATE = os.CLONE_NEWNET | os.CLONE_NEWNS | os.CLONE_NEWIPC
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 1 << 18
MS_NOSUID, MS_NODEV = 0x2, 0x4
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, ATTR_RDONLY = 442, -100, 0x8000, 0x1
PR_SET_PDEATHSIG, PR_CAPBSET_DROP = 1, 24
CAPABILITIES = 64
CAP_SETPCAP, CAP_SYS_PTRACE = 8, 19
TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108  covered with copies
EMPTY = ("/run", "/dev/shm")  # noqa: S108
# What of the machine itself is set through /proc; to its owner, which real root is in here too, it would be open.
MACHINE = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_LIBC = ctypes.CDLL(None, use_errno=True)


class NamespaceError(Exception):
    """The system allows no namespace; the message says which step it refused."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """What is laid over what: `over` is bound to `path`, or an empty folder where there is none."""

    path: str
    over: str | None = None
    made: bool = False
    """Where `path` is, or leads to, nothing, it is made first."""


def isolate() -> None:
    """Enter namespaces of our own and go on as the first process inside; the one that was waits and ends with us.

    Raises NamespaceError where they are refused.
    """
    user, group, privileged = os.geteuid(), os.getegid(), os.geteuid() == 0
    try:
        os.unshare(os.CLONE_NEWUSER)
    except OSError as error:
        if not privileged:
            raise NamespaceError(f"a user namespace: {error.strerror}") from error
    else:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    try:
        os.unshare(PRIVATE | os.CLONE_NEWPID)
    except OSError as error:
        raise NamespaceError(f"network, mount and process namespaces: {error.strerror}") from error
    _become_first()


def _become_first() -> None:
    outside = os.getpid()
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: os.kill(child, signal.SIGKILL if number == 15 else number))
        _, status = os.waitpid(child, 0)
        os._exit(min(abs(os.waitstatus_to_exitcode(status)), 255))
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() not in (0, outside):
        os._exit(1)


def confine_files(home: Path, own: Path, hidden: tuple[Hidden, ...], scratch: Path, more: tuple[str, ...] = ()) -> None:
    """Make all but `home` and copies of the temporary folders, and of `more`, unwritable; cover what is `hidden`.

    `own` is a folder that is the same inside and outside; `scratch`, an empty one, takes the copies.
    Raises NamespaceError where a mount is refused.
    """
    kept = [(folder, os.open(folder, os.O_PATH)) for folder in (home, own)]
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
    for path in filter(os.path.exists, (f"/proc/{name}" for name in MACHINE)):
        _mount(path, path, None, MS_BIND | MS_REC)  # by itself, so that it stays unwritable
    _make_devices()
    _mount("tmpfs", str(scratch), "tmpfs", MS_NOSUID | MS_NODEV)
    copies = [path for path in (*TEMPORARY, *more) if Path(path).is_dir()]
    upper = os.open(scratch, os.O_PATH)  # its path may be one that gets covered
    for path in copies:
        _copy(path, Path(f"/proc/self/fd/{upper}"))
    os.close(upper)
    for path in EMPTY:
        if Path(path).is_dir() and not Path(path).is_symlink():
            _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV)
    for folder, handle in kept:
        folder.mkdir(parents=True, exist_ok=True)
        _mount(f"/proc/self/fd/{handle}", str(folder), None, MS_BIND | MS_REC)
        os.close(handle)
    for cover in hidden:
        _hide(cover)
    _set_read_only("/", on=True, flags=AT_RECURSIVE)
    for path in ("/proc", "/dev/pts", *copies, *EMPTY, str(home)):
        if os.path.ismount(path):
            _set_read_only(path, on=False)


def _make_devices() -> None:
    """Lay a folder over /dev with the devices that programs expect, and terminals that are nobody's."""
    was = os.open("/dev", os.O_PATH)
    _mount("tmpfs", "/dev", "tmpfs", MS_NOSUID, "mode=755")
    for name in DEVICES:
        source, here = f"/proc/self/fd/{was}/{name}", Path("/dev", name)
        if os.path.exists(source):  # noqa: PTH110
            here.touch()
            _mount(source, str(here), None, MS_BIND)
    os.close(was)
    for name, target in DEVICE_LINKS.items():
        Path("/dev", name).symlink_to(target)
    for name in ("shm", "pts"):
        Path("/dev", name).mkdir()
    with contextlib.suppress(NamespaceError):  # without them no program gets a terminal, and few want one
        _mount("devpts", "/dev/pts", "devpts", MS_NOSUID, "newinstance,ptmxmode=0666,mode=620")


def _copy(path: str, scratch: Path) -> None:
    """Lay a copy over a folder: what is there is seen, what is written is kept apart."""
    upper, work = (scratch / f"{path.replace('/', '_')}{end}" for end in ("", ".work"))
    upper.mkdir(mode=0o1777)
    upper.chmod(0o1777)
    work.mkdir()
    try:
        _mount("overlay", path, "overlay", 0, f"lowerdir={path},upperdir={upper},workdir={work},userxattr")
    except NamespaceError:  # something is mounted inside the folder, or there are no overlays
        _lay_out(path)


def _lay_out(path: str) -> None:
    """Lay an empty folder over one, and show in it what was there; that cannot be written then."""
    was = os.open(path, os.O_PATH)
    _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for entry in os.scandir(f"/proc/self/fd/{was}"):
        here = Path(path, entry.name)
        if entry.is_symlink():
            here.symlink_to(Path(entry.path).readlink())
        elif entry.is_dir():
            here.mkdir()
        elif entry.is_file():
            here.touch()
        else:
            continue
        if not entry.is_symlink():
            with contextlib.suppress(NamespaceError):
                _mount(entry.path, str(here), None, MS_BIND | MS_REC)
    os.close(was)


def _hide(cover: Hidden) -> None:
    path = os.path.realpath(cover.path)
    if cover.made and not os.path.exists(path):  # noqa: PTH110  what we may not look into is not there for us
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()
    if cover.over is not None and os.path.exists(path):  # noqa: PTH110
        _mount(cover.over, path, None, MS_BIND | MS_REC)
    elif cover.over is None and os.path.isdir(path):  # noqa: PTH112
        _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV)


def confine_network() -> bool:
    """Make every address local; say whether every TCP port leads to one of ours. Raises NamespaceError."""
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo")
    with contextlib.suppress(NamespaceError):  # a machine without IPv6 has no way out by it
        _run("ip", "-6", "route", "add", "local", "::/0", "dev", "lo")
    try:
        _run("nft", "-f", "-", said=REDIRECT)
    except NamespaceError:
        return False
    return True


REDIRECT = """
table inet sinkhole {
  chain output {
    type nat hook output priority -100; policy accept;
    ip daddr 127.0.0.0/8 return
    ip6 daddr ::1 return
    tcp dport 53 return
    meta l4proto tcp redirect to :4
  }
}
"""


def _run(program: str, *words: str, said: str = "") -> None:
    found = shutil.which(program, path="/usr/sbin:/sbin:/usr/bin:/bin")
    if found is None:
        raise NamespaceError(f"there is no program {program!r}")
    done = subprocess.run([found, *words], input=said.encode(), capture_output=True, timeout=20, check=False)  # noqa: S603
    if done.returncode:
        raise NamespaceError(f"{program} {' '.join(words)}: {done.stderr.decode(errors='replace').strip()[:200]}")


def drop_capabilities(kept: tuple[int, ...] = ()) -> None:
    """See that no program started from here has a capability but those, though it be root in here."""
    for number in range(CAPABILITIES):
        if number not in kept:
            _LIBC.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)


def listening_sockets() -> tuple[str, ...]:
    """Give the paths of the unix sockets of this machine, as far as they are told; call it before `isolate`."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()[1:]
        paths = {words[7] for words in (line.split(None, 7) for line in lines) if len(words) == 8}
        return tuple(sorted(path for path in paths if path.startswith("/")))
    return ()


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    words = [word.encode() if word is not None else None for word in (source, target, kind)]
    if _LIBC.mount(*words, ctypes.c_ulong(flags), data.encode() or None) != 0:
        raise NamespaceError(f"mounting {kind or 'a view'} on {target}: {os.strerror(ctypes.get_errno())}")


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def _set_read_only(path: str, *, on: bool, flags: int = 0) -> None:
    wanted = _Attributes(ATTR_RDONLY if on else 0, 0 if on else ATTR_RDONLY, 0, 0)
    arguments = ctypes.byref(wanted), ctypes.c_size_t(ctypes.sizeof(wanted))
    if _LIBC.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, path.encode(), ctypes.c_uint(flags), *arguments) != 0:
        raise NamespaceError(f"making {path} {'read-only' if on else 'writable'}: {os.strerror(ctypes.get_errno())}")
