"""What a sandboxed server can still do: a table of acts, by real kernels' refusals, as this user and as nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.sandbox import acts, equipped
from tests.sandbox.machine import Machine, a_machine, give_to
from tests.support.confine_fixture import addresses
from tests.support.processes import REPOSITORY
from tests.support.system_needs import needs_namespaces
from tests.support.timeouts import PATIENCE

pytestmark = needs_namespaces
ROOT = os.geteuid() == 0
USERS = ["this user", *(["nobody"] if ROOT else [])]
ACTS_FILE = REPOSITORY / "tests" / "sandbox" / "acts.py"
PROFILE: dict[str, Any] = {
    # Broad on purpose: a whole home is read, and none of its secrets.
    "read": ["$HOME"],
    "write": ["$ROOTS", "$TMP"],
    "hide": ["**/.env"],
    "exec": ["/bin/true"],
    "limits": {"files": 256},
}


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with a_machine() as made:
        yield made


def boxed(
    machine: Machine, user: str, command: list[str], profile: dict[str, Any] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command in a sandbox, for a user to whom the machine's files belong."""
    if ROOT:
        give_to(machine, user)
    told = json.dumps({"profile": profile or PROFILE, "roots": [str(machine.root)], **options})
    return launched(machine, user, [sys.executable, "-m", "tests.sandbox.boxed", told, *command])


def launched(machine: Machine, user: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command as a user who has a token, a key, a terminal and an open descriptor."""
    words = [sys.executable, "-m", "tests.sandbox.equipped", *command]
    if user == "nobody":
        words = [sys.executable, "-m", "tests.confine.ordinary", *words]
    environ = {"PATH": os.environ["PATH"], "HOME": str(machine.home), "SECRET_TOKEN": "t"}
    return subprocess.run(
        words,
        cwd=REPOSITORY,
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        start_new_session=True,
    )


@pytest.fixture(scope="module", params=USERS)
def seen(request: pytest.FixtureRequest, machine: Machine) -> dict[str, dict[str, str]]:
    command = [sys.executable, str(ACTS_FILE), json.dumps(machine.given())]
    done = boxed(machine, request.param, command, require=True, leak=[equipped.DESCRIPTOR])
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("kind", acts.ACTS)
def test_no_act_happens(seen: dict[str, dict[str, str]], kind: str) -> None:
    assert [name for name, became in seen[kind].items() if became == acts.DONE] == []


def test_what_a_profile_allows_works(seen: dict[str, dict[str, str]]) -> None:
    assert {name: became for name, became in seen["honest"].items() if became != acts.DONE} == {}


def test_nobody_outside_heard_anything(seen: dict[str, dict[str, str]], machine: Machine) -> None:
    assert seen
    assert machine.heard() == []
    assert (machine.home / "document").read_text() == "secret"


OWN_NAMESPACES = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc"]


def happened_bare(user: str) -> set[str]:
    """Return the acts that happen without a sandbox; those of root in namespaces that are not the machine's."""
    with a_machine() as machine:
        command = [sys.executable, str(ACTS_FILE), json.dumps(machine.given())]
        if user == "nobody":
            give_to(machine, user)
        if user == "root":
            command = [*OWN_NAMESPACES, "sh", "-c", '"$@"; exit $?', "sh", *command]
        found = launched(machine, user, command)
        assert found.returncode == 0, found.stderr
        assert {"tcp", "abstract", "service"} <= set(machine.heard())
        seen = json.loads(found.stdout)
    return {name for kind in acts.ACTS for name, became in seen[kind].items() if became == acts.DONE}


def test_the_same_acts_happen_without_a_sandbox() -> None:
    """Show that every row can fail: without a sandbox an ordinary user does it, or root does."""
    ordinary = happened_bare("nobody" if ROOT else "this user")
    assert {*acts.SECRET_ACTS, *acts.HOME_ACTS} <= ordinary
    if ROOT:  # the rest is for who is root already
        addressed = {f"reaches {address}" for address in addresses()}
        every = {name for kind in acts.ACTS.values() for name in kind} | addressed
        assert every - ordinary - happened_bare("root") - acts.REFUSED_BARE == set()


@pytest.mark.parametrize("user", USERS)
def test_without_user_namespaces_landlock_and_seccomp_remain_and_require_refuses(machine: Machine, user: str) -> None:
    code = "import os, socket\n" + "\n".join(
        f"try: print({act}); print('done')\nexcept OSError as error: print(type(error).__name__)"
        for act in (f"open({str(machine.home / '.netrc')!r}).read()", "socket.socket()", "os.listdir('/root')")
    )
    command = ["/usr/bin/python3", "-I", "-c", code]
    profile = {"extends": ["python"], "read": ["$HOME"]}
    done = boxed(machine, user, command, profile, namespaces=False)
    assert done.stdout.split() == ["PermissionError", "OSError", "PermissionError"], done.stderr
    assert "no namespaces" in done.stderr
    refused = boxed(machine, user, command, profile, namespaces=False, require=True)
    assert (refused.returncode, refused.stdout) == (125, "")
    assert "the sandbox is not complete" in refused.stderr


@pytest.mark.parametrize("user", USERS)
def test_a_step_that_fails_ends_the_start(machine: Machine, user: str) -> None:
    marker = machine.root / f"started-{user}"
    replaced = machine.home / f"replaced-{user}"
    replaced.write_text("x")
    command = ["/usr/bin/python3", "-c", f"open({str(marker)!r}, 'w')"]
    # A file that vanishes between plan and start, as far as the launcher can tell.
    done = boxed(machine, user, command, vanishing=str(replaced))
    assert done.returncode == 125
    assert "another file than a moment ago" in done.stderr
    assert not marker.exists()


def tried(machine: Machine, user: str, *steps: str, **options: Any) -> list[str]:
    """Return what becomes of each step in a sandbox: its value, or the name of its error."""
    code = "import ctypes, errno, os, resource, socket\nfrom pathlib import Path\n" + "\n".join(
        f"try: print({step})\nexcept OSError as error: print(errno.errorcode[error.errno])" for step in steps
    )
    done = boxed(machine, user, ["/usr/bin/python3", "-I", "-c", code], require=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("user", USERS)
def test_no_program_is_made_that_others_would_run_as_its_user(machine: Machine, user: str) -> None:
    made = machine.root / "program"
    made.write_text("x")
    found = tried(
        machine,
        user,
        f"os.chmod({str(made)!r}, 0o4755)",
        f"os.fchmod(os.open({str(made)!r}, os.O_RDWR), 0o4755)",
        f"os.chmod({made.name!r}, 0o4755, dir_fd=os.open({str(machine.root)!r}, os.O_PATH))",
        f"os.write(os.open({str(made) + '2'!r}, os.O_CREAT | os.O_WRONLY, 0o4755), b'x')",
        f"os.chmod({str(made)!r}, 0o700)",
        f"os.chmod({str(machine.root)!r}, 0o2755)",  # as git does in a folder that is shared
    )
    assert found == ["EPERM", "EPERM", "EPERM", "1", "None", "None"]
    assert [path for path in machine.root.iterdir() if path.stat().st_mode & 0o4000] == []


@pytest.mark.parametrize("user", USERS)
def test_a_hidden_file_is_hidden_in_any_folder_that_a_line_names(machine: Machine, user: str) -> None:
    path = machine.home / ".tool" / ".env"
    path.parent.mkdir(exist_ok=True)
    path.write_text("secret")
    profile = {"extends": ["python"], "read": ["$HOME/.tool"], "hide": ["**/.env"]}
    assert tried(machine, user, f"Path({str(path)!r}).read_text()", profile=profile) == ["EACCES"]


@pytest.mark.parametrize("user", USERS)
def test_the_machines_handler_of_crashes_stays_away(machine: Machine, user: str) -> None:
    core = "resource.RLIMIT_CORE"
    found = tried(
        machine,
        user,
        f"resource.setrlimit({core}, (0, 0))",
        f"resource.getrlimit({core})",
        f"resource.prlimit(0, {core}, (0, 0)) and None",
        f"resource.prlimit(0, {core})",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
        "resource.getrlimit(resource.RLIMIT_NOFILE)",
    )
    # Said to be done: a program that asks for no core files need not give up.
    assert found == ["None", "(1, 1)", "None", "(1, 1)", "None", "(64, 64)"]


@pytest.mark.parametrize("user", USERS)
def test_a_socket_has_no_protocol_that_nobody_needs(machine: Machine, user: str) -> None:
    lite = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136).fileno() > 0"
    found = tried(machine, user, lite, lite.replace("136", "17"), lite.replace("136", "0").replace("DGRAM", "STREAM"))
    assert found == ["EAFNOSUPPORT", "True", "True"]


OWN_LISTENER = """
import ctypes, fcntl, os, struct, threading
libc = ctypes.CDLL(None, use_errno=True)
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 272), (6, 0, 0, 0x7FC00000), (6, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
made, listener = threading.Event(), -1
def answer():
    made.wait()
    question = bytearray(80)
    fcntl.ioctl(listener, 0xC0502100, question, True)
    fcntl.ioctl(listener, 0xC0182101, struct.pack("QqiI", struct.unpack_from("Q", question)[0], 0, 0, 1))
thread = threading.Thread(target=answer, daemon=True)
thread.start()
libc.prctl(38, 1, 0, 0, 0)
listener = libc.syscall(317, 1, 8, program)
print("listener", listener >= 0)
if listener >= 0:
    made.set()
print("unshared", libc.unshare(0x10000000) == 0)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of its system calls")
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("deaf", [False, True])
def test_a_server_does_not_answer_for_its_own_filter(machine: Machine, user: str, deaf: bool) -> None:
    """Also not once nobody listens outside, as while a run ends: the kernel would permit another listener then."""
    command = ["/usr/bin/python3", "-I", "-c", OWN_LISTENER]
    done = boxed(machine, user, command, {"extends": ["python"]}, require=True, deaf=deaf)
    assert done.stdout.splitlines() == ["listener False", "unshared False"], done.stderr


@pytest.mark.parametrize("user", USERS)
def test_limits_hold(machine: Machine, user: str) -> None:
    code = (
        "import os\n"
        "try: x = bytearray(400 << 20); print('memory')\nexcept MemoryError: print('no memory')\n"
        "children = 0\n"
        "try:\n for _ in range(40):\n  if os.fork() == 0: import signal; signal.pause()\n"
        "  children += 1\nexcept BlockingIOError: pass\n"
        "print(children < 40)\n"
    )
    profile = {"extends": ["python"], "limits": {"memory": "200MB", "processes": 20}}
    done = boxed(machine, user, ["/usr/bin/python3", "-c", code], profile)
    memory, *_, few = done.stdout.split("\n")[:-1]
    assert memory == "no memory"
    if user == "nobody":
        assert few == "True"
    elif ROOT:
        assert "the kernel does not count root's processes" in done.stderr
