"""Leaves this process, and what it starts, no way out: namespaces with one loopback, and a filesystem to read.

For a process of its own with one thread; nothing of this can be undone. Inside,
every address is local; of the filesystem only a private home and copies of the
temporary folders can be written; sockets through which something outside could
be asked to act are covered, and of devices there are only those that do nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from proxy.sandbox.namespaces import (
    AT_RECURSIVE,
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    PR_SET_PDEATHSIG,
    Hidden,
    NamespaceError,
    enter_user_namespace,
    hide,
    mount,
    prctl,
    run_program,
    set_read_only,
)

PRIVATE = os.CLONE_NEWNET | os.CLONE_NEWNS | os.CLONE_NEWIPC
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


def isolate() -> None:
    """Enter namespaces of our own and go on as the first process inside; the one that was waits and ends with us.

    Raises NamespaceError where they are refused.
    """
    try:
        enter_user_namespace(0, 0)
    except NamespaceError:
        if os.geteuid() != 0:  # root, still outside, can do without
            raise
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
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() not in (0, outside):
        os._exit(1)


def confine_files(home: Path, own: Path, hidden: tuple[Hidden, ...], scratch: Path, more: tuple[str, ...] = ()) -> None:
    """Make all but `home` and copies of the temporary folders, and of `more`, unwritable; cover what is `hidden`.

    `own` is a folder that is the same inside and outside; `scratch`, an empty one, takes the copies.
    Raises NamespaceError where a mount is refused.
    """
    kept = [(folder, os.open(folder, os.O_PATH)) for folder in (home, own)]
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
    for path in filter(os.path.exists, (f"/proc/{name}" for name in MACHINE)):
        mount(path, path, None, MS_BIND | MS_REC)  # by itself, so that it stays unwritable
    _make_devices()
    mount("tmpfs", str(scratch), "tmpfs", MS_NOSUID | MS_NODEV)
    copies = [path for path in (*TEMPORARY, *more) if Path(path).is_dir()]
    upper = os.open(scratch, os.O_PATH)  # its path may be one that gets covered
    for path in copies:
        _copy(path, Path(f"/proc/self/fd/{upper}"))
    os.close(upper)
    for path in EMPTY:
        if Path(path).is_dir() and not Path(path).is_symlink():
            mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV)
    for folder, handle in kept:
        folder.mkdir(parents=True, exist_ok=True)
        mount(f"/proc/self/fd/{handle}", str(folder), None, MS_BIND | MS_REC)
        os.close(handle)
    for cover in hidden:
        hide(cover)
    set_read_only("/", on=True, flags=AT_RECURSIVE)
    for path in ("/proc", "/dev/pts", *copies, *EMPTY, str(home)):
        if os.path.ismount(path):
            set_read_only(path, on=False)


def _make_devices() -> None:
    """Lay a folder over /dev with the devices that programs expect, and terminals that are nobody's."""
    was = os.open("/dev", os.O_PATH)
    mount("tmpfs", "/dev", "tmpfs", MS_NOSUID, "mode=755")
    for name in DEVICES:
        source, here = f"/proc/self/fd/{was}/{name}", Path("/dev", name)
        if os.path.exists(source):  # noqa: PTH110
            here.touch()
            mount(source, str(here), None, MS_BIND)
    os.close(was)
    for name, target in DEVICE_LINKS.items():
        Path("/dev", name).symlink_to(target)
    for name in ("shm", "pts"):
        Path("/dev", name).mkdir()
    with contextlib.suppress(NamespaceError):  # without them no program gets a terminal, and few want one
        mount("devpts", "/dev/pts", "devpts", MS_NOSUID, "newinstance,ptmxmode=0666,mode=620")


def _copy(path: str, scratch: Path) -> None:
    """Lay a copy over a folder: what is there is seen, what is written is kept apart."""
    upper, work = (scratch / f"{path.replace('/', '_')}{end}" for end in ("", ".work"))
    upper.mkdir(mode=0o1777)
    upper.chmod(0o1777)
    work.mkdir()
    try:
        mount("overlay", path, "overlay", 0, f"lowerdir={path},upperdir={upper},workdir={work},userxattr")
    except NamespaceError:  # something is mounted inside the folder, or there are no overlays
        _lay_out(path)


def _lay_out(path: str) -> None:
    """Lay an empty folder over one, and show in it what was there; that cannot be written then."""
    was = os.open(path, os.O_PATH)
    mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
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
                mount(entry.path, str(here), None, MS_BIND | MS_REC)
    os.close(was)


def confine_network() -> bool:
    """Make every address local; return whether every TCP port leads to one of ours. Raises NamespaceError."""
    run_program("ip", "link", "set", "lo", "up")
    run_program("ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo")
    with contextlib.suppress(NamespaceError):  # a machine without IPv6 has no way out by it
        run_program("ip", "-6", "route", "add", "local", "::/0", "dev", "lo")
    try:
        run_program("nft", "-f", "-", said=REDIRECT)
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
