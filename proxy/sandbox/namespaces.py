"""Namespaces, mounts and capabilities: what a process can do to itself and not undo.

Each step raises NamespaceError with the reason in words where the kernel refuses it.
`proxy/confine` takes the steps one by one; `isolate`, `confine_files` and
`confine_network` are a probe's. Those are for a process of its own with one thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from proxy.sandbox.kernel_calls import join_new_session_keyring
from proxy.sandbox.process_reaper import PR_SET_PDEATHSIG, prctl

MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 1 << 18
MS_NOSUID, MS_NODEV = 0x2, 0x4
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, ATTR_RDONLY = 442, -100, 0x8000, 0x1
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
CAPABILITIES, CAPABILITY_VERSION = 64, 0x20080522
CAP_SETPCAP, CAP_SYS_PTRACE = 8, 19
PRIVATE = os.CLONE_NEWNET | os.CLONE_NEWNS | os.CLONE_NEWIPC | os.CLONE_NEWPID
SO_ORIGINAL_DST = 80  # and IP6T_SO_ORIGINAL_DST
# Not the caller's PATH: what a server can write to must not name the programs that shut it in.
PROGRAMS = "/usr/sbin:/sbin:/usr/bin:/bin"
TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108  covered with copies
EMPTY = ("/run", "/dev/shm")  # noqa: S108
# Settings of the machine below /proc. Real root owns them, and writes them without any capability.
MACHINE = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
STREAMS = {name: f"/proc/self/fd/{number}" for number, name in enumerate(("stdin", "stdout", "stderr"))}
DEVICE_LINKS = {"fd": "/proc/self/fd", **STREAMS, "ptmx": "pts/ptmx"}
_LIBC = ctypes.CDLL(None, use_errno=True)


class NamespaceError(Exception):
    """The system refuses a step; the message says which."""


@dataclass(frozen=True, slots=True)
class OverMount:
    """What is mounted over `path`: `source`, or an empty folder where there is none."""

    path: str
    source: str | None = None
    create: bool = False  # an empty file at `path` first, where there is none


def enter_user_namespace(user: int, group: int) -> None:
    """Enter a user namespace in which we are `user` and `group`, and no other user exists. Raises NamespaceError."""
    outer_user, outer_group = os.geteuid(), os.getegid()
    try:
        os.unshare(os.CLONE_NEWUSER)
        # Before gid_map: the kernel takes a group map of an ordinary user only once groups cannot be dropped,
        # since membership of a group can also deny access to a file.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {outer_user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {outer_group} 1")
    except OSError as error:
        raise NamespaceError(f"a user namespace: {error.strerror}") from error


def enter_private_namespaces() -> None:
    """Enter network, mount and IPC namespaces; children enter a process namespace. Raises NamespaceError."""
    try:
        os.unshare(PRIVATE)
    except OSError as error:
        raise NamespaceError(f"network, mount and process namespaces: {error.strerror}") from error


def die_with_parent(parent: int, code: int = 1) -> None:
    """Have the kernel kill us when `parent` dies; exit with `code` where it is already dead."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have died before the line above. Seen from a process namespace below its own, its number is 0.
    if os.getppid() not in (0, parent):
        os._exit(code)


def drop_capabilities(kept: tuple[int, ...] = ()) -> None:
    """Drop all but `kept` from the bounding set: no program started from here gets them, root in here included."""
    for number in range(CAPABILITIES):
        if number not in kept:
            with contextlib.suppress(OSError):  # the kernel does not know as many
                prctl(PR_CAPBSET_DROP, number)


def renounce_capabilities() -> None:
    """Give up every capability, for this process and whatever it executes. Raises NamespaceError where one is left."""
    drop_capabilities()  # first: dropping from the bounding set takes CAP_SETPCAP
    with contextlib.suppress(OSError):  # a kernel without ambient capabilities has none to clear
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    head, none = struct.pack("=Ii", CAPABILITY_VERSION, 0), bytes(24)
    if _LIBC.capset(head, none) != 0:
        raise NamespaceError(f"dropping capabilities: {os.strerror(ctypes.get_errno())}")
    try:
        # Else a setuid program would bring back what was dropped; seccomp filters need it as well.
        prctl(PR_SET_NO_NEW_PRIVS, 1)
    except OSError as error:
        raise NamespaceError(f"forbidding new privileges: {error.strerror}") from error
    # The steps above tolerate old kernels, so the result is checked and not assumed.
    if any(capability_sets().values()):
        raise NamespaceError("dropping capabilities: some are left")


def capability_sets() -> dict[str, int]:
    """Return this process's capabilities by kind, as the kernel reports them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {line[:6]: int(line.split()[1], 16) for line in lines if line.startswith("Cap")}


def run_program(program: str, *words: str, stdin: str = "") -> None:
    """Run one of the system's programs to its end. Raises NamespaceError where there is none, or it fails."""
    found = shutil.which(program, path=PROGRAMS)
    if found is None:
        raise NamespaceError(f"there is no program {program!r}")
    done = subprocess.run([found, *words], input=stdin.encode(), capture_output=True, timeout=20, check=False)  # noqa: S603
    if done.returncode:
        raise NamespaceError(f"{program} {' '.join(words)}: {done.stderr.decode(errors='replace').strip()[:200]}")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Make the system call of that name. Raises NamespaceError where it is refused."""
    words = [os.fsencode(word) if word is not None else None for word in (source, target, kind)]
    if _LIBC.mount(*words, ctypes.c_ulong(flags), data.encode() or None) != 0:
        raise NamespaceError(f"mounting {kind or 'a view'} on {target}: {os.strerror(ctypes.get_errno())}")


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd"))


def set_read_only(path: str, *, on: bool, flags: int = 0) -> None:
    """Make a mount read-only or writable; with AT_RECURSIVE, all below it too. Raises NamespaceError."""
    # mount_setattr, not a remount: a remount in a user namespace must repeat every flag that the mount has
    # from outside, and cannot reach the mounts below.
    wanted = _MountAttributes(ATTR_RDONLY if on else 0, 0 if on else ATTR_RDONLY, 0, 0)
    arguments = ctypes.byref(wanted), ctypes.c_size_t(ctypes.sizeof(wanted))
    if _LIBC.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, os.fsencode(path), ctypes.c_uint(flags), *arguments) != 0:
        raise NamespaceError(f"making {path} {'read-only' if on else 'writable'}: {os.strerror(ctypes.get_errno())}")


def mount_proc() -> None:
    """Mount a /proc of our own, without the names of keys: a user sees all of its own there. Raises NamespaceError."""
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
    for path in filter(os.path.exists, ("/proc/keys", "/proc/key-users")):
        mount("/dev/null", path, None, MS_BIND)


def over_mount(cover: OverMount) -> None:
    """Mount something over a path; what does not exist needs no cover. Raises NamespaceError."""
    # A mount on a link goes to its target, so the target is what must exist.
    path = os.path.realpath(cover.path)
    if cover.create and not os.path.exists(path):  # noqa: PTH110  what we may not look into is not there for us
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()
    if cover.source is not None and os.path.exists(path):  # noqa: PTH110
        mount(cover.source, path, None, MS_BIND | MS_REC)
    elif cover.source is None and os.path.isdir(path):  # noqa: PTH112
        mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV)


def sockets_below(folder: str, depth: int) -> list[str]:
    """Return the paths of the unix sockets in a folder, down to `depth` levels, as far as we may read it."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                found += sockets_below(entry.path, depth - 1) if depth > 1 else []
            elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                found += [entry.path] if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode) else []
    return found


def listening_sockets() -> tuple[str, ...]:
    """Return the paths of this machine's unix sockets, as far as they are known. Call it outside of any namespace."""
    names: set[str] = set()
    with contextlib.suppress(OSError):
        lines = Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()[1:]
        names = {words[7] for words in (line.split(None, 7) for line in lines) if len(words) == 8}
    found = {name for name in names if name.startswith("/")}
    # The kernel reports the name a socket was bound to. ssh renames its own afterwards, within the same folder.
    for folder in {os.path.dirname(name) for name in found if not os.path.exists(name)}:  # noqa: PTH110, PTH120
        if not folder.startswith("/proc/"):  # /proc/self is another process's for everybody who reads it
            found.update(sockets_below(folder, 1))
    # A relative name was bound below the working folder of some process; which one is not reported.
    relative = [name for name in names if not name.startswith(("/", "@"))]
    if relative:
        paths = (os.path.normpath(f"{folder}/{name}") for folder in _working_folders() for name in relative)
        found.update(path for path in paths if Path(path).is_socket())
    return tuple(sorted(found))


def _working_folders() -> set[str]:
    found = set()
    for name in os.listdir("/proc"):  # noqa: PTH208  most names are no process's
        if name.isdigit():
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{name}/cwd"))  # noqa: PTH115
    return found


def close_from(first: int) -> None:
    """Close every descriptor from that number on; those above a limit that was lowered since are closed too."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) >= first:
            with contextlib.suppress(OSError):  # the one that the list was read by
                os.close(int(name))


def original_destination(connection: socket.socket) -> tuple[str, int]:
    """Return the address and port that were dialled before any redirection. Raises OSError where none was recorded."""
    if connection.family == socket.AF_INET:
        raw = connection.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
        return socket.inet_ntop(socket.AF_INET, raw[4:8]), int.from_bytes(raw[2:4])
    raw = connection.getsockopt(socket.IPPROTO_IPV6, SO_ORIGINAL_DST, 28)
    return socket.inet_ntop(socket.AF_INET6, raw[8:24]), int.from_bytes(raw[2:4])


def route_all_to_loopback(own_address: str | None = None) -> None:
    """Make every address one of this network namespace's own. Raises NamespaceError."""
    run_program("ip", "link", "set", "lo", "up")
    if own_address is not None:
        run_program("ip", "addr", "add", own_address, "dev", "lo")
    # Without a route, connect() fails before the name or the request is seen.
    run_program("ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo")
    with contextlib.suppress(NamespaceError):  # a machine without IPv6 has no way out by it
        run_program("ip", "-6", "route", "add", "local", "::/0", "dev", "lo")


def isolate() -> None:
    """Return as the first process in namespaces of our own; the original process waits. Raises NamespaceError."""
    join_new_session_keyring()  # the launcher's may hold its owner's keys
    try:
        enter_user_namespace(0, 0)
    except NamespaceError:
        if os.geteuid() != 0:  # real root may make the others without one
            raise
    enter_private_namespaces()
    outside = os.getpid()
    child = os.fork()  # the caller of unshare stays outside of the process namespace; its first child is process 1
    if child:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # Process 1 of a namespace ignores signals without a handler, but not SIGKILL from outside,
        # which ends everything in the namespace with it.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: os.kill(child, signal.SIGKILL if number == 15 else number))
        _, status = os.waitpid(child, 0)
        os._exit(min(abs(os.waitstatus_to_exitcode(status)), 255))
    die_with_parent(outside)


def confine_files(
    home: Path,
    own: Path,
    covers: tuple[OverMount, ...],
    scratch: Path,
    more: tuple[str, ...] = (),
    seen_at: Path | None = None,
) -> None:
    """Make everything read-only but `home` and copies of the temporary folders and of `more`; apply `covers`.

    `own` is a folder that is the same inside and outside; `scratch`, an empty one, takes the copies. The home is at
    `seen_at` inside, else where it is.
    Raises NamespaceError where a mount is refused.
    """
    # Both folders may be below /tmp, which is about to be covered: from here on they are reached by descriptor.
    seen = seen_at or home
    kept = [(seen, os.open(home, os.O_PATH)), (own, os.open(own, os.O_PATH))]
    # Before any other mount: where the machine's mounts are shared, ours would appear outside.
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount_proc()
    for path in filter(os.path.exists, (f"/proc/{name}" for name in MACHINE)):
        # A mount of its own stays read-only when /proc as a whole becomes writable again below.
        mount(path, path, None, MS_BIND | MS_REC)
    _make_devices()
    mount("tmpfs", str(scratch), "tmpfs", MS_NOSUID | MS_NODEV)
    copies = [path for path in (*TEMPORARY, *more) if Path(path).is_dir()]
    upper = os.open(scratch, os.O_PATH)  # its path may be one that gets covered
    for path in copies:
        _cover_with_copy(path, Path(f"/proc/self/fd/{upper}"))
    os.close(upper)
    for path in EMPTY:
        if Path(path).is_dir() and not Path(path).is_symlink():
            mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV)
    for folder, handle in kept:
        folder.mkdir(parents=True, exist_ok=True)
        mount(f"/proc/self/fd/{handle}", str(folder), None, MS_BIND | MS_REC)
        os.close(handle)
    for cover in covers:
        over_mount(cover)
    # Last: nothing can be created or mounted over afterwards. What was forgotten above is read-only, not writable.
    set_read_only("/", on=True, flags=AT_RECURSIVE)
    for path in ("/proc", "/dev/pts", *copies, *EMPTY, str(seen)):
        if os.path.ismount(path):
            set_read_only(path, on=False)


def _make_devices() -> None:
    """Cover /dev with a folder that has the harmless devices alone: no disks, no memory, nobody's terminal."""
    outside = os.open("/dev", os.O_PATH)
    mount("tmpfs", "/dev", "tmpfs", MS_NOSUID, "mode=755")
    for name in DEVICES:
        source, here = f"/proc/self/fd/{outside}/{name}", Path("/dev", name)
        if os.path.exists(source):  # noqa: PTH110
            here.touch()
            mount(source, str(here), None, MS_BIND)
    os.close(outside)
    for name, target in DEVICE_LINKS.items():
        Path("/dev", name).symlink_to(target)
    for name in ("shm", "pts"):
        Path("/dev", name).mkdir()
    with contextlib.suppress(NamespaceError):  # without them no program gets a terminal, and few want one
        mount("devpts", "/dev/pts", "devpts", MS_NOSUID, "newinstance,ptmxmode=0666,mode=620")


def _cover_with_copy(path: str, scratch: Path) -> None:
    """Cover a folder with an overlay: its content is visible, and writes end in `scratch`."""
    upper, work = (scratch / f"{path.replace('/', '_')}{end}" for end in ("", ".work"))
    upper.mkdir()
    upper.chmod(0o1777)  # not by mkdir: the umask would take bits away
    work.mkdir()
    try:
        mount("overlay", path, "overlay", 0, f"lowerdir={path},upperdir={upper},workdir={work},userxattr")
    except NamespaceError:  # something is mounted inside the folder, or there are no overlays
        _cover_with_binds(path)


def _cover_with_binds(path: str) -> None:
    """Cover a folder with an empty one, and bind its content into that; existing files are read-only then."""
    covered = os.open(path, os.O_PATH)
    mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for entry in os.scandir(f"/proc/self/fd/{covered}"):
        here = Path(path, entry.name)
        if entry.is_symlink():
            here.symlink_to(Path(entry.path).readlink())
            continue
        if entry.is_dir():
            here.mkdir()
        elif entry.is_file():
            here.touch()
        else:
            continue  # a socket or a pipe may lead to somebody outside
        with contextlib.suppress(NamespaceError):
            mount(entry.path, str(here), None, MS_BIND | MS_REC)
    os.close(covered)


def confine_network() -> bool:
    """Make every address local; return whether every TCP port leads to one of ours. Raises NamespaceError."""
    route_all_to_loopback()
    try:
        run_program("nft", "-f", "-", stdin=REDIRECT)
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
