"""`interlock run --sandbox`: real servers behind the gate, with and without strace."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from proxy.sandbox.process_reaper import descendants
from tests.confine.ordinary import NOBODY
from tests.servers.asking import CLIENTS
from tests.servers.misbehaving import EXPECTED
from tests.support.harness import environment, make_certificates, start_interlock
from tests.support.node_tools import node
from tests.support.processes import REPOSITORY
from tests.support.stdio_harness import Run, run_command, start_run
from tests.support.system_needs import needs, needs_namespaces
from tests.support.timeouts import PATIENCE

pytestmark = [needs("curl", "strace"), needs_namespaces]
ASKING = [sys.executable, str(REPOSITORY / "tests" / "servers" / "asking.py")]
FILES = REPOSITORY / "tests/node/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
ALLOW = "version: 1\ndefault: allow\n"
KNOWN = f"""{ALLOW}egress:
  default: allow
  rules:
    - {{id: known, action: allow, hosts: [site.test, web.test, localhost, 127.0.0.1]}}
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="interlock-run-", dir="/var/tmp"))
    (made / "root").mkdir()
    (made / "root" / "a.txt").write_text("hello")
    (made / "root" / ".env").write_text("TOKEN=1")
    (made / "policy.yaml").write_text(ALLOW)
    yield made
    shutil.rmtree(made)


def text_of(answer: dict[str, Any]) -> str:
    return str(answer["result"]["content"][0]["text"])


def started(folder: Path, command: list[str], *flags: str, **options: Any) -> AbstractContextManager[Run]:
    flags = flags if "--trace" in flags else (*flags, "--trace", "off")
    return start_run(folder, command, *flags, **{"policy": ALLOW, **options})


def profile(folder: Path, **lines: Any) -> str:
    file = folder / "profile.yaml"
    file.write_text(json.dumps({"extends": ["python", "node"], "read": [str(folder / "root")], **lines}))
    return f"--sandbox={file}"


@pytest.mark.parametrize("trace", ["off", "require"])
def test_a_filesystem_server_works_and_its_events_say_what_holds(folder: Path, trace: str) -> None:
    root = folder / "root"
    command = [node(), str(FILES), str(root)]
    with started(folder, command, "--sandbox", "--trace", trace) as run:
        run.ask(
            "initialize", 1, protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "c", "version": "1"}
        )
        assert text_of(run.call("read_text_file", 2, path=str(root / "a.txt"))) == "hello"
        assert "result" in run.call("write_file", 3, path=str(root / "new.txt"), content="x")
        assert run.end() == 0, run.errors()
        assert (root / "new.txt").read_text() == "x"
        decided = [event for event in run.events() if event["kind"] == "decided"]
        assert {event["detail"]["sandbox"]["mode"] for event in decided} == {"enforce"}
        assert all(event["detail"]["sandbox"]["namespaces"] for event in decided)
        if trace == "require":
            seen = [
                each
                for event in run.events()
                if event["kind"] == "observed"
                for each in event["detail"]["observations"]
            ]
            # Nothing of the set-up is blamed on the server, which begins with its own program.
            assert (seen[0]["action"], seen[0]["path"]) == ("exec", os.path.realpath(node()))
            assert not [each for each in seen if each["capability"] == "kernel"]
            assert str(root / "a.txt") in [each.get("path") for each in seen]


@pytest.mark.parametrize("change", ["renamed", "made", "replaced"])
def test_what_is_not_granted_stays_hidden_whatever_the_host_does(folder: Path, change: str) -> None:
    secrets = folder / "home" / ".ssh"
    secrets.mkdir(parents=True)
    (secrets / "id_rsa").write_text("key")
    (folder / "home" / "work").mkdir()
    flag = profile(folder, read=["$HOME"])
    with started(folder, ASKING, flag, env={"HOME": str(folder / "home")}) as run:
        assert "FileNotFoundError" in text_of(run.call("read", 1, path=str(secrets / "id_rsa")))
        target = folder / "home" / "shown" / "id_rsa"
        if change == "renamed":
            secrets.rename(folder / "home" / "shown")
        elif change == "made":
            target = folder / "home" / ".aws" / "credentials"
            target.parent.mkdir()
            target.write_text("key")
        else:
            shutil.rmtree(secrets)
            secrets.mkdir()
            (secrets / "id_rsa").write_text("new")
            target = secrets / "id_rsa"
        assert "FileNotFoundError" in text_of(run.call("read", 2, path=str(target)))


@pytest.mark.parametrize("trace", ["off", "require"])
def test_a_supervised_server_does_not_open_a_hidden_file_that_is_made_later(folder: Path, trace: str) -> None:
    root = folder / "root"
    flag = profile(folder, write=[str(root)], hide=["**/*.key"], supervise=True)
    with started(folder, ASKING, flag, "--trace", trace) as run:
        assert text_of(run.call("read", 1, path=str(root / "a.txt"))) == "hello"
        (root / "later.key").write_text("made by the host")
        (root / "plain").write_text("other name")
        (root / "linked.txt").symlink_to("later.key")
        os.link(root / "later.key", root / "deep.key")
        for number, name in enumerate(("later.key", "linked.txt", "deep.key", "../root/later.key"), 2):
            assert "PermissionError" in text_of(run.call("read", number, path=str(root / name)))
        assert "PermissionError" in text_of(run.call("write", 10, path=str(root / "own.key"), text="x"))
        assert text_of(run.call("read", 11, path=str(root / "plain"))) == "other name"
        assert text_of(run.call("write", 12, path=str(root / "own.txt"), text="x")) == "1"
        assert run.end() == 0
        refused = [event for event in run.events() if event["kind"] == "act_refused" and event["call_id"]]
    assert {event["rule"] for event in refused} == {"sandbox: hide: **/*.key"}


@pytest.mark.parametrize("by_link", [False, True])
def test_what_confines_a_server_is_not_its_to_read_change_or_move(folder: Path, tmp_path: Path, by_link: bool) -> None:
    state, link = folder / "root" / "state", tmp_path / "link"
    link.symlink_to(folder)
    flag = profile(folder, write=[str(link if by_link else folder)])
    with started(folder, ASKING, flag, state_dir=state) as run:
        assert text_of(run.call("rename", 1, path=f"{folder}/root/a.txt", to=f"{folder}/root/b.txt"))
        assert (folder / "root" / "b.txt").read_text() == "hello"
        for number, path in enumerate((folder / "policy.yaml", folder / "profile.yaml", state / "run.json"), 2):
            assert "PermissionError" in text_of(run.call("read", number, path=str(path)))
            assert "Error" in text_of(run.call("write", 10 + number, path=str(path), text="{}"))
        # What would be made in the place of a moved one, the next start would take for its own.
        for number, path in enumerate((folder / "policy.yaml", folder / "profile.yaml", state, folder / "root"), 20):
            assert "busy" in text_of(run.call("rename", number, path=str(path), to=f"{path}.moved"))


def test_a_server_makes_no_settings_for_the_next_start(folder: Path) -> None:
    settings = folder / "root" / "interlock.yaml"
    with started(folder, ASKING, "--sandbox", cwd=folder / "root") as run:
        assert text_of(run.call("write", 1, path=f"{folder}/root/new.txt", text="x")) == "1"
        with started(folder, ASKING, "--sandbox", cwd=folder / "root") as other:
            assert text_of(other.call("write", 1, path=f"{folder}/root/new.txt", text="x")) == "1"
            assert other.end() == 0
        # The other one ends first, and leaves the name taken.
        assert "Error" in text_of(run.call("write", 2, path=str(settings), text="policy: p.yaml"))
        assert "Error" in text_of(run.call("rename", 3, path=f"{folder}/root/new.txt", to=str(settings)))
        assert run.end() == 0
    assert not settings.exists()


def own_server(root: Path) -> list[str]:
    """Put a server into a project of its own, and return its command."""
    (root / "src").mkdir()
    for name in ("asking.py", "tiny.py"):
        shutil.copy(REPOSITORY / "tests" / "servers" / name, root / "src")
    (root / "pyproject.toml").touch()
    (root.parent / "package.json").touch()
    (root.parent / "private").write_text("private")
    return [sys.executable, "src/asking.py"]


def test_a_server_does_not_choose_a_larger_package_for_its_next_start(folder: Path) -> None:
    """A package is the nearest folder with a manifest. Without its own, that of the folder above would be found."""
    root = folder / "root"
    command = own_server(root)
    for turn in range(2):
        with started(folder, command, "--sandbox", cwd=root) as run:
            assert "Error" in text_of(run.call("read", 1, path=str(folder / "private")))
            assert text_of(run.call("read", 2, path=str(root / "a.txt"))) == "hello"
            if turn == 0:
                text_of(run.call("rename", 3, path=str(root / "pyproject.toml"), to=str(root / "gone")))
            assert run.end() == 0
        assert (f"does not open {folder}: " in run.stderr.read_text()) == (turn == 1)


@pytest.mark.parametrize("later", [False, True])
def test_a_file_by_a_link_of_the_servers_brings_nothing(folder: Path, later: bool) -> None:
    root = folder / "root"
    command = own_server(root)
    shutil.move(root / "src", folder / "private.d")
    (folder / "private.d" / "private").write_text("private")
    (root / "src").symlink_to(folder / "private.d")
    command = [*ASKING, "src/asking.py"] if later else command
    with started(folder, command, "--sandbox", cwd=root) as run:
        if later:
            assert "Error" in text_of(run.call("read", 1, path=str(folder / "private.d" / "private")))
        run.end()
    assert f"does not open {folder}" in run.stderr.read_text()


def test_a_word_of_the_command_line_is_no_root_by_a_link_of_the_servers(folder: Path) -> None:
    root = folder / "root"
    (folder / "private").mkdir()
    (folder / "private" / "notes").write_text("private")
    (root / "stdio").symlink_to(folder / "private")
    with started(folder, [*ASKING, "stdio"], "--sandbox", cwd=root) as run:
        assert "Error" in text_of(run.call("read", 1, path=str(folder / "private" / "notes")))
        assert "Error" in text_of(run.call("write", 2, path=str(folder / "private" / "new"), text="x"))
        assert text_of(run.call("write", 3, path=str(root / "new"), text="x")) == "1"
        assert run.end() == 0
    assert f"does not open {root}/stdio" in run.stderr.read_text()


def test_a_policy_by_a_link_that_the_server_could_replace_is_refused(folder: Path) -> None:
    (folder / "real.yaml").write_text(ALLOW)
    (folder / "root" / "link.yaml").symlink_to(folder / "real.yaml")
    flag = profile(folder, write=[str(folder / "root")])
    words = run_command(folder / "state", folder / "root" / "link.yaml", ASKING, flag, "--trace", "off")
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment())
    assert done.returncode != 0
    assert "could put its own link.yaml there" in done.stderr


def test_a_pair_of_sockets_reaches_no_socket_of_the_host(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as service:
        service.bind(str(folder / "root" / "log.sock"))
        with started(folder, ASKING, profile(folder)) as run:
            assert "Error" in text_of(run.call("send", 1, path=str(folder / "root" / "log.sock")))
            assert run.end() == 0
        assert "a unix socket" in json.dumps(run.events()), run.events()
        service.setblocking(False)
        with pytest.raises(BlockingIOError):
            service.recv(10)


def test_what_is_refused_in_a_first_call_without_an_opening_is_told_with_it(folder: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=Path.home()) as outside:
        told_in_first_call(folder, outside.name)


def refused_in_calls(run: Run) -> list[tuple[str, str, str]]:
    """Return what was refused in calls: the tool, the target, and the line of the profile."""
    return [
        (event["tool"], each["target"], each["line"])
        for event in run.events()
        if event.get("call_id")
        for each in event.get("detail", {}).get("violations", [])
    ]


def told_in_first_call(folder: Path, outside: str) -> None:
    with started(folder, ASKING, profile(folder), "--trace", "require") as run:
        assert "Error" in text_of(run.call("read", 1, path=outside))
        assert run.end() == 0
    assert refused_in_calls(run) == [("read", outside, "read and write do not list it")]


@pytest.mark.parametrize("trace", ["off", "require"])
def test_nothing_is_left_when_the_launcher_is_killed(folder: Path, trace: str) -> None:
    unwritten, written = folder / "unwritten.txt", folder / "written.txt"
    flag = profile(folder, write=[str(folder / "root"), str(unwritten), str(written)])
    (folder / "tmp").mkdir()
    before = sorted((folder / "root").rglob("*"))
    with started(folder, ASKING, flag, "--trace", trace, env={"TMPDIR": str(folder / "tmp")}) as run:
        assert text_of(run.call("linger", 1)) == "started"
        assert text_of(run.call("write", 2, path=str(written), text="x")) == "1"
        assert unwritten.exists()  # an empty one: only what exists can be shown
        below = descendants(run.process.pid)
        assert len(below) >= 3
        os.kill(run.process.pid, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        while any(Path(f"/proc/{pid}").exists() for pid in below):
            assert time.monotonic() < deadline, "something is left"
            time.sleep(0.02)
    assert sorted((folder / "root").rglob("*")) == before
    assert list((folder / "tmp").iterdir()) == []
    assert written.read_text() == "x"
    assert not unwritten.exists()


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"there")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the library's own name
        pass


class World:
    """A site, plain and with TLS, a unix socket that greets, and a proxy that knows the site by name."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        certificates = make_certificates(folder / "certificates", "site.test", "web.test")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificates.cert_file, certificates.key_file)
        self.plain, self.tls = (self._serve(stack, each) for each in (None, context))
        self.greeting = folder / "greeting.sock"
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(self.greeting))
        listener.listen()
        threading.Thread(target=self._greet, args=(listener,), daemon=True).start()
        stack.callback(listener.shutdown, socket.SHUT_RDWR)
        started = start_interlock(
            folder / "proxy", policy=KNOWN, upstream_ca=certificates.ca_file, program=["tests.daemon.named"]
        )
        self.state_dir = stack.enter_context(started).state_dir

    def _serve(self, stack: contextlib.ExitStack, context: ssl.SSLContext | None) -> int:
        made = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page))
        if context is not None:
            made.socket = context.wrap_socket(made.socket, server_side=True)
        threading.Thread(target=made.serve_forever, daemon=True).start()
        stack.callback(made.shutdown)
        return made.server_port

    def _greet(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                with listener.accept()[0] as connection:
                    connection.sendall(b"hello")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="interlock-world-", dir="/var/tmp")))
        yield World(folder, stack)


def test_every_client_reaches_an_allowed_host_and_none_another(folder: Path, world: World) -> None:
    site = world.plain
    flag = profile(folder, network=[f"localhost:{site}", "a.test:80"], exec=["curl", "node"])
    with started(folder, ASKING, flag, state_dir=world.state_dir) as run:
        reached = {
            client: text_of(run.call("fetch", number, client=client, url=f"http://localhost:{site}/"))
            for number, client in enumerate(CLIENTS, 1)
        }
        assert {client: said.strip() for client, said in reached.items()} == dict.fromkeys(CLIENTS, "there")
        for number, host in enumerate(("b.test", "127.0.0.2", "example.com"), 20):
            assert "there" not in text_of(run.call("fetch", number, client="curl", url=f"http://{host}:{site}/"))


NETWORKS: dict[str, tuple[Any, set[str]]] = {
    "any": ("any", {"https://site.test", "http://site.test", "http://web.test"}),
    "a host by its port": (["site.test:{tls}"], {"https://site.test"}),
    "a host by every port": (["site.test:*"], {"https://site.test", "http://site.test"}),
    "hosts by every port": (["*.test:*"], {"https://site.test", "http://site.test", "http://web.test"}),
    "every port, and one of this machine": (
        ["web.test:*", "localhost:{plain}"],
        {"http://web.test", "http://localhost", "http://127.0.0.1"},
    ),
    "a name that begins like this machine's": (["localhost.test:{plain}", "127.0.0.10:{plain}"], set()),
}


@pytest.mark.parametrize("row", NETWORKS)
def test_a_network_is_what_its_line_says(folder: Path, world: World, row: str) -> None:
    network, expected = NETWORKS[row]
    ports = {"tls": world.tls, "plain": world.plain}
    if isinstance(network, list):
        network = [entry.format_map(ports) for entry in network]
    flag = profile(folder, network=network, exec=["curl"])
    tried = ("https://site.test", *(f"http://{name}" for name in ("site.test", "web.test", "localhost", "127.0.0.1")))
    with started(folder, ASKING, flag, state_dir=world.state_dir) as run:
        reached = set()
        for number, url in enumerate(tried, 1):
            port = ports["tls" if url.startswith("https") else "plain"]
            if "there" in text_of(run.call("fetch", number, client="curl", url=f"{url}:{port}/")):
                reached.add(url)
        assert reached == expected, run.errors()


def test_a_state_folder_inside_of_what_is_granted_shows_the_proxys_certificate_alone(
    folder: Path, world: World
) -> None:
    state = world.state_dir
    flag = profile(folder, write=[str(state.parent)], network=["site.test:*"], exec=["curl"])
    with started(folder, ASKING, flag, state_dir=state) as run:
        reached = run.call("fetch", 1, client="curl", url=f"https://site.test:{world.tls}/")
        assert "there" in text_of(reached), run.errors()
        assert "BEGIN CERTIFICATE" in text_of(run.call("read", 2, path=str(state / "ca" / "bundle.pem")))
        for number, name in enumerate(("run.json", "ca/mitmproxy-ca.pem"), 3):
            assert (state / name).exists()
            assert "FileNotFoundError" in text_of(run.call("read", number, path=str(state / name)))
        assert "Error" in text_of(run.call("write", 9, path=str(state / "ca" / "bundle.pem"), text="x"))
        assert "Error" in text_of(run.call("write", 10, path=str(state / "new"), text="x"))


def test_a_bound_tool_reaches_the_hosts_that_its_call_names_and_the_rest_is_told(folder: Path, world: World) -> None:
    port = world.plain
    tools = {"fetch": {"network": "from arguments"}}
    hosts = ["site.test:*", "web.test:*", f"localhost:{port}"]
    flag = profile(folder, network=hosts, exec=["curl"], tools=tools, on_violation="withhold")
    with started(folder, ASKING, flag, state_dir=world.state_dir) as run:
        for number, name in enumerate(("site.test", "localhost"), 1):
            assert "there" in text_of(run.call("fetch", number, client="curl", url=f"http://{name}:{port}/"))
        # Its arguments name a page, and the tool visits another one: each is on the profile's list.
        for number, (named, visited) in enumerate((("site.test", "web.test"), ("site.test", "localhost")), 10):
            said = run.ask(
                "tools/call",
                number,
                name="fetch",
                arguments={"client": "split", "url": f"http://{named}:{port}/ {visited.encode().hex()}"},
            )
            assert "there" not in json.dumps(said)
            assert "sandbox_violation" in json.dumps(said), run.errors()
        assert run.end() == 0
        told = [event for event in run.events() if event["kind"] == "act_refused"]  # the module's other servers', too
        refused = [event for event in told if "from arguments" in event["rule"]]
    assert [(event["tool"], event["detail"]["target"]) for event in refused] == [
        ("fetch", f"{name}:{port}") for name in ("web.test", "localhost")
    ]
    assert all(event["call_id"] for event in refused)


def test_a_listed_socket_is_reached_and_none_beside_it(folder: Path, world: World) -> None:
    beside = folder / "root" / "beside.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(beside))
        listener.listen()
        flag = profile(folder, sockets=[str(world.greeting)])
        with started(folder, ASKING, flag, "--trace", "require") as run:
            assert text_of(run.call("connect", 1, path=str(world.greeting))) == "hello"
            assert "Error" in text_of(run.call("connect", 2, path=str(beside)))
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()
            assert run.end() == 0
            assert refused_in_calls(run) == [("connect", str(beside), "sockets does not list it")]
        with started(folder, ASKING, profile(folder)) as run:
            assert "hello" not in text_of(run.call("connect", 3, path=str(world.greeting)))


@pytest.mark.parametrize("trace", ["off", "require"])
def test_what_seccomp_refuses_is_told_with_its_call_and_bars_no_answer(folder: Path, trace: str) -> None:
    flag = profile(folder, on_violation="withhold")
    with started(folder, ASKING, flag, "--trace", trace) as run:
        assert "OSError" in text_of(run.call("connect", 1, path=str(folder / "root" / "none.sock")))
        assert run.end() == 0
        told = [event for event in run.events() if event["kind"] == "act_refused" and event["call_id"]]
        assert [(event["tool"], event["detail"]["target"], event["detail"]["line"]) for event in told] == [
            ("connect", "a unix socket", "sockets lists none")
        ]


def test_the_machines_accounts_are_not_shown(folder: Path) -> None:
    with started(folder, ASKING, profile(folder)) as run:
        shown = text_of(run.call("read", 1, path="/etc/passwd"))
        assert {line.split(":")[2] for line in shown.splitlines()} == {"0", "65534", str(os.geteuid())}
        assert text_of(run.call("read", 2, path="/etc/hosts")) != Path("/etc/hosts").read_text()
        assert "localhost" in text_of(run.call("read", 3, path="/etc/hosts"))


def test_a_network_without_a_proxy_is_refused(folder: Path) -> None:
    flag = profile(folder, network=["a.test"])
    with started(folder, ASKING, flag) as run:
        assert run.wait() == 1
        assert "none runs on" in run.errors()


def test_the_policys_section_holds_without_a_word_on_the_command_line(folder: Path) -> None:
    section = {"asking": {"extends": ["python"], "read": [str(folder / "root")], "hide": ["**/.env"]}}
    with started(folder, ASKING, policy=f"{ALLOW}sandbox: {json.dumps(section)}\n") as run:
        assert text_of(run.call("read", 1, path=str(folder / "root" / "a.txt"))) == "hello"
        assert text_of(run.call("read", 2, path=str(folder / "root" / ".env"))) != "TOKEN=1"
        assert "FileNotFoundError" in text_of(run.call("read", 3, path=str(folder / "policy.yaml")))


def test_a_policy_that_is_reloaded_changes_the_hosts_at_once_and_says_what_needs_a_new_start(
    folder: Path, world: World
) -> None:
    section = {"extends": ["python"], "read": [str(folder / "root")], "network": ["*.test:*"], "exec": ["curl"]}
    policy = f"{KNOWN}sandbox: {json.dumps({'asking': section})}\n"
    fetch = {"client": "curl", "url": f"http://site.test:{world.plain}/"}
    with started(folder, ASKING, policy=policy, state_dir=world.state_dir) as run:
        assert "there" in text_of(run.call("fetch", 1, **fetch))
        changed = section | {"network": ["web.test:*"], "read": []}
        run.policy.write_text(f"{KNOWN}sandbox: {json.dumps({'asking': changed})}\n")
        deadline, number = time.monotonic() + PATIENCE, 1
        while "there" in text_of(run.call("fetch", number := number + 1, **fetch)):
            assert time.monotonic() < deadline, run.errors()
        assert "there" in text_of(run.call("fetch", number + 1, **fetch | {"url": f"http://web.test:{world.plain}/"}))
        assert "read of its sandbox changed" in run.errors()


def test_shadow_refuses_nothing_and_says_so(folder: Path) -> None:
    flag = profile(folder, mode="shadow")
    with started(folder, ASKING, flag) as run:
        assert text_of(run.call("read", 1, path=str(folder / "policy.yaml"))) == ALLOW
        run.end()
        assert [e["detail"]["sandbox"]["mode"] for e in run.events() if e["kind"] == "decided"] == ["shadow"]


MISBEHAVING = [sys.executable, str(REPOSITORY / "tests" / "servers" / "misbehaving.py")]
CANARY = "kept-in-the-home"
SOUGHT = (
    *(".netrc", ".aws/credentials", ".kube/config", ".bitcoin/wallet.dat", ".config/gh/hosts.yml", ".ssh/known_hosts"),
    *(".codex/auth.json", ".vault-token", ".claude/.credentials.json", ".claude.json", ".pgpass", ".zsh_history"),
    *(".config/chromium/Default/Login Data", "documents/data.csv", "documents/settings.json", ".bashrc"),
)
# These say nothing of an error that they get, or do what stays inside: text for the model, a port of their own.
QUIET = {
    *("harmless", "hides_its_words", "orders_the_model", "answers_with_orders", "waits_for_callers"),
    *("tells_by_names", "tells_by_a_plain_name", "tells_by_many_names", "does_it_afterwards", "posts_to_this_machine"),
    *("deletes_from_the_home", "deletes_a_document", "looks_for_a_token", "opens_a_token_that_is_absent"),
    *("runs_from_memory", "attaches_to_the_tracer", "looks_into_the_tracer", "leaves_its_bounds", "kills_the_tracer"),
    *("watches_the_keys", "asks_for_all_packets", "asks_the_keyring", "shows_its_variables"),
}


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that is not below /var/tmp, of which a server has its own."""
    with tempfile.TemporaryDirectory(prefix="interlock-home-", dir=Path.home()) as made:
        yield Path(made)


def content(*folders: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}


def test_a_server_that_is_started_in_the_home_does_not_read_it(folder: Path, home: Path) -> None:
    (home / "documents").mkdir()
    (home / "documents" / "letter").write_text("dear")
    with started(folder, ASKING, "--sandbox", cwd=home, env={"HOME": str(home)}) as run:
        assert "Error" in text_of(run.call("read", 1, path=str(home / "documents" / "letter")))
        assert run.end() == 0


def test_every_bad_tool_is_stopped_and_not_only_named(folder: Path, home: Path) -> None:
    for name in SOUGHT:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"{name} {CANARY}")
    (folder / "root" / ".git").mkdir()
    flag = profile(folder, extends=["python"])
    before = content(home, folder / "root")
    env = {"HOME": str(home), "SERVICE_TOKEN": CANARY, "SSH_AUTH_SOCK": "/run/agent.sock"}
    given = {
        "reads_another_document": {"path": str(folder / "root" / "a.txt")},
        "says_it_only_reads": {"path": str(folder / "root" / "a.txt")},
        "makes_a_git_hook": {"repository": str(folder / "root")},
        "does_it_sometimes": {"style": "list"},
    }
    with started(folder, MISBEHAVING, flag, env=env) as run:
        said = {}
        for number, tool in enumerate([*EXPECTED, "does_it_later", "does_it_later", "does_it_later"], 1):
            said[tool] = run.call(tool, number, **given.get(tool, {"text": "x"}))["result"]
    assert {tool for tool, result in said.items() if not result["isError"]} == QUIET
    assert CANARY not in json.dumps(said)
    assert content(home, folder / "root") == before
    assert not Path("/etc/cron.d/tidy").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are an ordinary user's already")
def test_an_ordinary_user_has_a_whole_sandbox_by_the_same_command(folder: Path) -> None:
    secret = folder / "home" / ".ssh" / "id_rsa"
    secret.parent.mkdir(parents=True)
    secret.write_text("key")
    flag = profile(folder, read=[str(folder / "root"), "$HOME"]).replace("=", "=require:")
    for each in (folder, *folder.rglob("*")):
        os.chown(each, NOBODY, NOBODY)
    words = run_command(folder / "state", folder / "policy.yaml", ASKING, flag, "--trace", "off")
    calls = [
        {
            "jsonrpc": "2.0",
            "id": n,
            "method": "tools/call",
            "params": {"name": "read", "arguments": {"path": str(path)}},
        }
        for n, path in enumerate((folder / "root" / "a.txt", secret, Path("/etc/shadow")))
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.confine.ordinary", *words],
        cwd=REPOSITORY,
        env=environment({"HOME": str(folder / "home")}),
        input="".join(json.dumps(call) + "\n" for call in calls),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = {found["id"]: text_of(found) for found in map(json.loads, done.stdout.splitlines())}
    assert answers[0] == "hello"
    assert "FileNotFoundError" in answers[1]
    assert "FileNotFoundError" in answers[2]


def test_the_clients_stderr_is_not_in_the_servers_hands(folder: Path) -> None:
    """A client's log file, or its terminal, is reached by nobody who may only write to a pipe."""
    with started(folder, ASKING, profile(folder)) as run:
        said = text_of(run.call("log", 1, text="a line for people"))
        assert said == "pipe"
        assert run.end() == 0
        assert "a line for people" in run.errors()
