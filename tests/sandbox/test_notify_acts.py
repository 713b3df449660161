"""What a supervised process can open, and all the ways around that it cannot: with the real kernel, as root and not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.confine.ordinary import NOBODY
from tests.sandbox.supervised import limits, supervised
from tests.support.timeouts import PATIENCE

SECRET = "the-secret"
# Each row: what it does, and how it must end. SECRET must come out of none of them.
REFUSED: dict[str, tuple[str, str]] = {
    "by its path": ("print(open(f'{folder}/secret/s').read())", "EACCES"),
    "by ..": ("print(open(f'{named}/../secret/s').read())", "EACCES"),
    "by slashes": ("print(open(f'//{named}//.././secret//s').read())", "EACCES"),
    "relative": ("os.chdir(named); print(open('../secret/s').read())", "EACCES"),
    "beside, by a common beginning": ("print(open(f'{named}-not/s').read())", "EACCES"),
    "a folder's list": ("print(os.listdir(f'{folder}/secret'))", "EACCES"),
    "a link": ("print(open(f'{named}/link').read())", "EACCES"),
    "a link to a folder": ("print(open(f'{named}/folder/s').read())", "EACCES"),
    "a link to a link": ("os.symlink('link', f'{named}/l2'); print(open(f'{named}/l2').read())", "EACCES"),
    "a new link": ("os.symlink(f'{folder}/secret/s', f'{named}/l3'); print(open(f'{named}/l3').read())", "EACCES"),
    "a hard link": ("os.link(f'{folder}/secret/s', f'{named}/hard'); print(open(f'{named}/hard').read())", "EACCES"),
    "a hard link by the working folder": ("os.chdir(f'{folder}/secret'); os.link('s', f'{named}/hard')", "EACCES"),
    "moved in": ("os.rename(f'{folder}/secret/s', f'{named}/moved'); print(open(f'{named}/moved').read())", "EACCES"),
    "its folder moved in": ("os.rename(f'{folder}/secret', f'{named}/moved')", "EACCES"),
    "exchanged": (
        (
            "syscall({'x86_64': 316, 'aarch64': 276}[os.uname().machine], -100, f'{folder}/secret/s'.encode(), -100, "
            "f'{named}/ok'.encode(), 2)"
        ),
        "EACCES",
    ),
    "by a folder's descriptor": (
        "d = os.open(f'{folder}/secret', os.O_PATH); print(os.read(os.open('s', 0, dir_fd=d), 99))",
        "EACCES",
    ),
    "by a descriptor that only names it": (
        "d = os.open(f'{folder}/secret/s', os.O_PATH); print(open(f'/proc/self/fd/{d}').read())",
        "EACCES",
    ),
    "by /dev/fd": (
        "d = os.open(f'{folder}/secret/s', os.O_PATH); print(open(f'/dev/fd/{d}').read())",
        "EACCES",
    ),
    "by /proc/self/root": ("print(open(f'/proc/self/root{folder}/secret/s').read())", "EACCES"),
    "by its number in /proc": ("print(open(f'/proc/{os.getpid()}/root{folder}/secret/s').read())", "EACCES"),
    "by /proc/thread-self/cwd": (
        "os.chdir(f'{folder}/secret'); print(open('/proc/thread-self/cwd/s').read())",
        "EACCES",
    ),
    "by a link to /proc/self": (
        "os.symlink('/proc/self', f'{named}/me'); print(open(f'{named}/me/environ').read())",
        "EACCES",
    ),
    "the memory of a process": ("open('/proc/self/mem', 'rb+')", "EACCES"),
    "of its parent": ("print(open(f'/proc/{os.getppid()}/environ').read())", "EACCES"),
    "of the first process": ("open('/proc/1/status')", "EACCES"),
    "a namespace": ("open('/proc/self/ns/mnt')", "EACCES"),
    "a device": ("open('/dev/tty')", "EACCES"),
    "in a thread": (
        (
            "got = []\ndef work():\n  try: got.append(open(f'{folder}/secret/s').read())\n"
            "  except OSError as error: got.append(error)\n"
            "one = threading.Thread(target=work); one.start(); one.join()\n"
            "if isinstance(got[0], OSError): raise got[0]\nprint(got[0])"
        ),
        "EACCES",
    ),
    "in a child": (
        (
            "child = os.fork()\nif not child:\n  try: open(f'{folder}/secret/s').read(); os._exit(0)\n"
            "  except OSError as error: os._exit(error.errno)\n"
            "raise OSError(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), '')"
        ),
        "EACCES",
    ),
    "in another program": (
        (
            "reading, writing = os.pipe()\nchild = os.fork()\nif not child:\n  os.dup2(writing, 1)\n"
            "  os.execv('/bin/cat', ['cat', f'{folder}/secret/s'])\nos.close(writing)\n"
            "print(os.read(reading, 99).decode(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
        ),
        "1",
    ),
    "written": ("open(f'{folder}/secret/s', 'w')", "EACCES"),
    "made beside": ("open(f'{folder}/secret/new', 'w')", "EACCES"),
    "made by creat": (
        (
            "import platform\nif platform.machine() == 'x86_64': syscall(85, f'{folder}/secret/new'.encode(), 0o600)\n"
            "else: raise OSError(13, '')"
        ),
        "EACCES",
    ),
    "made through a link that leads nowhere": (
        "os.symlink(f'{folder}/secret/new', f'{named}/nowhere'); open(f'{named}/nowhere', 'w')",
        "EACCES",
    ),
    "shortened": ("os.truncate(f'{folder}/secret/s', 0)", "EACCES"),
    "shortened through a link": ("os.truncate(f'{named}/link', 0)", "EACCES"),
    "deleted": ("os.unlink(f'{folder}/secret/s')", "EACCES"),
    "deleted through a link": ("os.unlink(f'{named}/folder/s')", "EACCES"),
    "its folder deleted": ("os.rmdir(f'{folder}/secret')", "EACCES"),
    "a folder made": ("os.mkdir(f'{folder}/secret/d')", "EACCES"),
    "a link made": ("os.symlink('x', f'{folder}/secret/l')", "EACCES"),
    "opened up": ("os.chmod(f'{folder}/secret/s', 0o777)", "EACCES"),
    "opened up through a link": ("os.chmod(f'{named}/link', 0o777)", "EACCES"),
    "given away": ("os.chown(f'{folder}/secret/s', os.getuid(), os.getgid())", "EACCES"),
    "its times": ("os.utime(f'{folder}/secret/s')", "EACCES"),
    "its attributes": ("os.setxattr(f'{folder}/secret/s', 'user.a', b'1')", "ENOTSUP"),
    "a nameless file in its folder": ("os.open(f'{folder}/secret', os.O_TMPFILE | os.O_RDWR, 0o600)", "EACCES"),
    "a named pipe": ("os.mkfifo(f'{named}/pipe')", "EPERM"),
    "a device made": ("os.mknod(f'{named}/zero', 0o020666, os.makedev(1, 5))", "EPERM"),
    "io_uring": ("syscall(425, 8, bytes(120))", "ENOSYS"),
    "openat2": ("syscall(437, -100, f'{folder}/secret/s'.encode(), bytes(24), 24)", "ENOSYS"),
    "a file handle": (
        "syscall({'x86_64': 304, 'aarch64': 265}[os.uname().machine], -100, bytes(128), 0)",
        "EPERM",
    ),
    "fanotify": ("syscall({'x86_64': 300, 'aarch64': 262}[os.uname().machine], 0, 0)", "EPERM"),
    "another process's descriptor": ("syscall(438, os.pidfd_open(os.getpid()), 0, 0)", "EPERM"),
    "a tree of mounts": ("syscall(428, -100, folder.encode(), 1)", "EPERM"),
    "a mount namespace": ("os.unshare(os.CLONE_NEWNS)", "EPERM"),
    "a user namespace": ("os.unshare(os.CLONE_NEWUSER)", "EPERM"),
    "a child in a user namespace": (
        "syscall({'x86_64': 56, 'aarch64': 220}[os.uname().machine], 0x10000011, 0, 0, 0, 0)",
        "EPERM",
    ),
    "clone3, whose flags are in memory": ("syscall(435, bytes(88), 88)", "ENOSYS"),
    "another root": ("os.chroot(f'{folder}/secret')", "EPERM"),
    "a mount": (
        (
            "libc.mount(b'x', folder.encode(), b'tmpfs', 0, None) and syscall(165 if os.uname().machine == "
            "'x86_64' else 40, b'x', folder.encode(), b'tmpfs', 0, None)"
        ),
        "EPERM",
    ),
    "ptrace": ("syscall({'x86_64': 101, 'aarch64': 117}[os.uname().machine], 0, 0, 0, 0)", "EPERM"),
    "another's memory": (
        "syscall({'x86_64': 310, 'aarch64': 270}[os.uname().machine], os.getppid(), None, 0, None, 0, 0)",
        "EPERM",
    ),
    "pages that stall us": ("syscall({'x86_64': 323, 'aarch64': 282}[os.uname().machine], 1)", "EPERM"),
    "a socket that descriptors come by": ("import _socket; _socket.socket(1, 1)", "EAFNOSUPPORT"),
    "another user": ("os.setuid(65533)", "EPERM"),
    "a call that is not known yet": ("syscall(600)", "ENOSYS"),
    "a path that is no memory": (
        "syscall({'x86_64': 257, 'aarch64': 56}[os.uname().machine], -100, 8, 0, 0)",
        "EFAULT",
    ),
    "a path without an end": (
        "syscall({'x86_64': 257, 'aarch64': 56}[os.uname().machine], -100, b'/' + b'a' * 9000, 0, 0)",
        "ENAMETOOLONG",
    ),
}
GRANTED: dict[str, tuple[str, str]] = {
    "read": ("print(open(f'{named}/ok').read())", "fine"),
    "read below": ("print(open(f'{named}/sub/deep').read())", "fine"),
    "listed": ("print(sorted(os.listdir(f'{named}/sub')))", "['deep']"),
    "relative": ("os.chdir(named); print(open('ok').read(), open('sub/../ok').read())", "fine fine"),
    "by a folder's descriptor": ("d = os.open(named, 0); print(os.read(os.open('ok', 0, dir_fd=d), 9))", "b'fine'"),
    "by a link within": ("os.symlink('ok', f'{named}/within'); print(open(f'{named}/within').read())", "fine"),
    "by /proc/self/fd": ("d = os.open(f'{named}/ok', 0); print(open(f'/proc/self/fd/{d}').read())", "fine"),
    "made, with the umask": (
        "os.umask(0o027); open(f'{named}/new', 'w').write('1'); print(oct(os.stat(f'{named}/new').st_mode & 0o777))",
        "0o640",
    ),
    "made with the mode that was asked for": (
        (
            "os.umask(0); os.close(os.open(f'{named}/m', os.O_CREAT | os.O_WRONLY, 0o604)); "
            "print(oct(os.stat(f'{named}/m').st_mode & 0o777))"
        ),
        "0o604",
    ),
    "added to": (
        "log = f'{named}/log'; open(log, 'a').write('1'); open(log, 'a').write('2'); print(open(log).read())",
        "12",
    ),
    "made only once": ("open(f'{named}/ok', 'x')", "EEXIST"),
    "a folder made and removed": ("os.mkdir(f'{named}/d'); os.rmdir(f'{named}/d'); print(1)", "1"),
    "renamed, linked, shortened and deleted": (
        (
            "open(f'{named}/a', 'w').write('123'); os.rename(f'{named}/a', f'{named}/b'); os.link(f'{named}/b', "
            "f'{named}/c'); os.truncate(f'{named}/c', 2); print(open(f'{named}/b').read()); os.unlink(f'{named}/b'); "
            "os.unlink(f'{named}/c')"
        ),
        "12",
    ),
    "a nameless file, then named": (
        (
            "d = os.open(named, os.O_TMPFILE | os.O_RDWR, 0o600); os.write(d, b'x'); "
            "os.link(f'/proc/self/fd/{d}', f'{named}/tmp', follow_symlinks=True); print(open(f'{named}/tmp').read())"
        ),
        "x",
    ),
    "times and mode": (
        (
            "os.utime(f'{named}/ok', (5, 6)); os.chmod(f'{named}/ok', 0o640); s = os.stat(f'{named}/ok'); "
            "print(s.st_mtime, oct(s.st_mode & 0o777))"
        ),
        "6.0 0o640",
    ),
    "devices without an owner": ("print(len(os.read(os.open('/dev/urandom', 0), 4)), open('/dev/null').read())", "4"),
    "about itself": (
        "print(open('/proc/self/status').read()[:5], open('/proc/meminfo').read()[:8])",
        "Name: MemTotal",
    ),
    "its own descriptors": ("print(open('/dev/null', 'r').fileno() in map(int, os.listdir('/proc/self/fd')))", "True"),
    "what is absent": ("open(f'{named}/absent')", "ENOENT"),
    "what is absent elsewhere": ("open(f'{folder}/absent')", "ENOENT"),
    "a file is no folder": ("os.open(f'{named}/ok', os.O_DIRECTORY)", "ENOTDIR"),
    "a descriptor that is not there": ("os.open('ok', 0, dir_fd=900)", "EBADF"),
    "not inherited unless asked for": ("print(os.get_inheritable(os.open(f'{named}/ok', 0)))", "False"),
    "a pair of sockets": ("import _socket; print(len(_socket.socketpair()))", "2"),
    "threads and children": ("child = os.fork()\nif not child: os._exit(7)\nprint(os.waitpid(child, 0)[1] >> 8)", "7"),
    "another program": (
        (
            "reading, writing = os.pipe()\nchild = os.fork()\nif not child:\n  os.dup2(writing, 1)\n"
            "  os.execv('/bin/cat', ['cat', f'{named}/sub/deep'])\nos.waitpid(child, 0); print(os.read(reading, 9))"
        ),
        "b'fine'",
    ),
}
USERS = ("ourselves", "nobody") if os.geteuid() == 0 else ("ourselves",)


def lay_out(folder: Path) -> Path:
    named = folder / "named"
    for each in (named / "sub", folder / "secret", folder / "named-not"):
        each.mkdir(parents=True)
    for each in (folder / "secret" / "s", folder / "named-not" / "s"):
        each.write_text(SECRET)
    for each in (named / "ok", named / "sub" / "deep"):
        each.write_text("fine")
    (named / "link").symlink_to(folder / "secret" / "s")
    (named / "folder").symlink_to("../secret")
    return named


def execute(folder: Path, user: str) -> dict[str, str]:
    """Return how each row ended, by its name."""
    named = lay_out(folder)
    rows = {**{f"no {name}": code for name, (code, _) in REFUSED.items()}, **{k: v[0] for k, v in GRANTED.items()}}
    command = [sys.executable, "-m", "tests.sandbox.supervised"]
    if user == "nobody":
        command = [sys.executable, "-m", "tests.confine.ordinary", *command]
        for each in (folder, *folder.rglob("*")):
            os.chown(each, NOBODY, NOBODY, follow_symlinks=False)
        for each in folder.parents:
            if not each.stat().st_mode & 0o001:
                each.chmod(each.stat().st_mode | 0o011)
    given = {"folder": str(folder), "named": [str(named)], "rows": list(rows.values())}
    done = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["failed"] is None
    assert (folder / "secret" / "s").read_text() == SECRET
    return dict(zip(rows, told["rows"], strict=True))


@pytest.fixture(scope="module", params=USERS)
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return execute(tmp_path_factory.mktemp("bound").resolve() / "files", str(request.param))


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_call_did_not_name_is_out_of_reach(ended: dict[str, str], name: str) -> None:
    assert SECRET not in ended[f"no {name}"]
    assert ended[f"no {name}"] == REFUSED[name][1]


@pytest.mark.parametrize("name", GRANTED)
def test_what_a_call_named_works_as_ever(ended: dict[str, str], name: str) -> None:
    assert ended[name] == GRANTED[name][1]


def test_a_file_is_written_beside_first_and_renamed(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    (folder / "notes.txt.old").write_text("before")
    with supervised(limits(folder)) as server:
        server.supervisor.begin_call("call", frozenset({str(folder / "notes.txt")}))
        write = "open(f'{folder}/{name}', 'w').write('new'); os.rename(f'{folder}/{name}', f'{folder}/notes.txt')"
        assert server.run(write, folder=str(folder), name="notes.txt.4f2a.tmp") == ""
        assert server.run(write, folder=str(folder), name="notes.txt.old") == "EACCES"  # is there already
        assert server.run(write, folder=str(folder), name="else.tmp") == "EACCES"
    assert (folder / "notes.txt").read_text() == "new"
    assert (folder / "notes.txt.old").read_text() == "before"


def test_every_act_is_told_before_the_program_goes_on(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    (folder / "a").write_text("fine")
    acts: list[Any] = []
    with supervised(limits(folder), acts.append) as server:
        server.supervisor.begin_call("call", frozenset({str(folder / "a")}))
        server.run("open(f'{folder}/a').close()", folder=str(folder))
        opened = acts[-1]
        server.run("os.symlink('a', f'{folder}/b')", folder=str(folder))
        denied = acts[-1]
        server.run("os.unshare(os.CLONE_NEWNS)")
        refused = acts[-1]
    assert (opened.call, opened.paths, opened.error, opened.denied) == ("openat", (str(folder / "a"),), 0, False)
    assert (denied.paths, denied.error, denied.denied, denied.writes) == ((str(folder / "b"),), 13, True, True)
    assert (refused.call, refused.error, refused.denied) == ("unshare", 1, True)
