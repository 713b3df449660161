"""A confined agent gets out through the proxy and by no other way: tried as this user and as an ordinary one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.test_exec import ca_folder
from tests.confine.ordinary import NOBODY
from tests.sandbox.equipped import SEARCH
from tests.support.confine_fixture import World, make_world
from tests.support.harness import environment, free_port
from tests.support.node_tools import node
from tests.support.processes import REPOSITORY, Process, run_module, start_module
from tests.support.system_needs import needs, needs_namespaces
from tests.support.timeouts import PATIENCE
from tests.support.web_site import PAGE

pytestmark = [needs("nft", "ip", "unshare", "curl", "git"), needs_namespaces]
ROOT = os.geteuid() == 0


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with make_world() as made:
        yield made


@pytest.fixture(scope="module", params=["this user", *(["an ordinary user"] if ROOT else [])])
def seen(request: pytest.FixtureRequest, world: World) -> dict[str, str]:
    """What became of every attempt of a hostile agent; tests run as root try it as somebody else as well."""
    ordinary = request.param == "an ordinary user"
    hostile = [sys.executable, str(REPOSITORY / "tests" / "confine" / "hostile.py")]
    flags = ["--keep-socket", str(world.folder / "kept.sock"), "--host-port", str(world.host_port)]
    done = world.confine(*hostile, json.dumps(world.outside(ordinary=ordinary)), ordinary=ordinary, flags=flags)
    assert done.returncode == 0, done.stderr
    told: dict[str, str] = json.loads(done.stdout)
    return told


def test_the_agent_is_the_user_that_it_was_without_any_capability(seen: dict[str, str]) -> None:
    status = dict(line.split(":\t", 1) for line in seen["status"].splitlines() if ":\t" in line)
    assert set(status["Uid"].split()) <= {str(os.getuid()), str(NOBODY)}
    assert {status[kind] for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_there_is_no_interface_but_loopback(seen: dict[str, str]) -> None:
    assert [line.partition(":")[0].strip() for line in seen["interfaces"].splitlines()[2:]] == ["lo"]


@pytest.mark.parametrize(
    "way", ["host loopback", "host loopback, IPv6", "host loopback, UDP", "abstract service", "service"]
)
def test_what_is_on_the_hosts_own_loopback_and_its_services_are_not_there(seen: dict[str, str], way: str) -> None:
    assert seen[way].startswith("ConnectionRefusedError")


@pytest.mark.parametrize("way", ["address", "address, IPv6", "address, odd port"])
def test_an_address_that_is_dialled_ends_at_the_proxy(seen: dict[str, str], world: World, way: str) -> None:
    assert seen[way].startswith("heard b'HTTP/1.1 403 Forbidden")
    host = "[2001:db8::9]" if "IPv6" in way else "203.0.113.9"
    port = 25 if "odd" in way else 443
    refused = [event for event in world.interlock.recorded() if event["server"] == f"{host}:{port}"]
    assert {(event["kind"], event["reason"]) for event in refused} == {("connection_refused", "egress_denied")}


def test_so_it_does_inside_tls(seen: dict[str, str]) -> None:
    assert "EOF" in seen["address in TLS"] or "Reset" in seen["address in TLS"]


def test_no_address_of_the_host_leads_to_it(seen: dict[str, str]) -> None:
    ways = {name: what for name, what in seen.items() if name.startswith("host ") and "loopback" not in name}
    for name, what in ways.items():
        assert what.startswith(("PermissionError", "ConnectionRefused") if "UDP" in name else "heard b'HTTP/1.1 403"), (
            name
        )


@pytest.mark.parametrize("way", ["forwarder", "address of no name"])
def test_the_forwarder_serves_nobody_who_comes_to_it_by_itself(seen: dict[str, str], way: str) -> None:
    assert seen[way] == "heard b''" or seen[way].startswith("ConnectionResetError")


@pytest.mark.parametrize("way", ["QUIC", "QUIC, IPv6", "ICMP", "raw socket", "terminal", "ptrace", "setns"])
def test_what_needs_more_than_the_agent_has_is_not_permitted(seen: dict[str, str], way: str) -> None:
    assert seen[way].startswith("PermissionError")


@pytest.mark.parametrize("way", ["packet socket", "vsock", "io_uring", "request_key"])
def test_doors_that_are_in_no_namespace_are_shut(seen: dict[str, str], way: str) -> None:
    assert seen[way].startswith(("OSError: [Errno 97]", "OSError: [Errno 38]"))


@pytest.mark.parametrize("way", ["DNS", "DNS, IPv6", "DNS, TCP"])
def test_whoever_is_asked_for_a_name_it_is_our_resolver_that_answers(seen: dict[str, str], way: str) -> None:
    assert "\\xc0\\x0c\\x00\\x01\\x00\\x01" in seen[way]
    assert "\\xc6\\x12\\x00" in seen[way]  # 198.18.0


@pytest.mark.parametrize(
    "way", ["nft flush", "ip route", "ip link", "new user namespace", "uncover", "look under the cover", "mount"]
)
def test_the_rules_and_covers_cannot_be_taken_away(seen: dict[str, str], way: str) -> None:
    assert not seen[way].startswith("exit 0")
    assert "operator" not in seen[way]


def test_the_first_process_cannot_be_killed_or_looked_into(seen: dict[str, str]) -> None:
    assert seen["kill"] == "still there"
    assert seen["environment of the first process"].startswith("PermissionError")


def test_the_proxys_keys_are_hidden_and_its_policy_cannot_be_written(seen: dict[str, str]) -> None:
    names = seen["state"].split()
    assert not {"run.json", "keys", "log", "operator.sock", "mitmproxy-ca.pem"} & set(names)
    for way in ("into the state", "policy", "kernel setting"):
        assert "Read-only file system" in seen[way] or "Permission denied" in seen[way]


def test_a_socket_that_was_to_be_kept_is_there(seen: dict[str, str]) -> None:
    assert seen["kept service"] == "heard b'hello'"


def test_a_port_of_the_host_that_was_asked_for_is_there_by_way_of_the_proxy(seen: dict[str, str]) -> None:
    assert seen["port of the host by name"] == f"heard {PAGE.encode()!r}"
    assert (
        seen["port of the host by address"] == "HTTPError: HTTP Error 403: Forbidden"
    )  # by which the policy lets nobody


def test_an_environment_made_to_go_around_the_proxy_goes_through_it(seen: dict[str, str]) -> None:
    assert seen["environment"] == f"heard {PAGE.encode()!r}"
    assert "Error" in seen["environment, denied"]
    assert seen["denied in the clear"] == "HTTPError: HTTP Error 403: Forbidden"


def test_nothing_of_all_that_was_heard_outside(seen: dict[str, str], world: World) -> None:
    assert world.heard() == []


@pytest.mark.parametrize("way", ["by its network", "by its environment"])
def test_ordinary_clients_work_and_their_calls_are_decided_and_recorded_by_name(world: World, way: str) -> None:
    by_network = way == "by its network"
    flags = world.add_agent("confined" if by_network else "executed")
    folder = Path(tempfile.mkdtemp(dir=world.folder))
    folder.chmod(0o777)
    visits = [
        sys.executable,
        str(REPOSITORY / "tests" / "support" / "agent_visits.py"),
        str(folder),
        node(),
        world.site,
    ]
    visits.append(f"https://mcp.test:{world.server.port}")
    world.server.new_executions()
    before = len(world.interlock.events(some=False))
    done = world.confine(*visits, ordinary=ROOT, flags=flags) if by_network else world.execute(*visits, flags=flags)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("sdk") == {"allowed": "hi", "denied": "policy_denied"}
    assert told == dict.fromkeys(("curl", "git", "node", "httpx", "requests", "urllib"), PAGE)
    assert [run["tool"] for run in world.server.new_executions()] == ["echo"]
    calls = [event for event in world.interlock.events()[before:] if event.get("tool")]
    assert {(event["agent"], event["server"], event["tool"]) for event in calls} == {
        (flags[1], f"mcp.test:{world.server.port}", tool) for tool in ("echo", "danger")
    }


def confined(folder: Path, *command: str, module: tuple[str, ...] = ("proxy.cli",), port: int = 1) -> list[str]:
    ca_folder(folder)
    found = ["--listen", f"127.0.0.1:{port}", "--ca-folder", str(folder), "--state-dir", str(folder / "state")]
    return [*module, "confine", *found, "--", *command]


def start(folder: Path, script: str) -> Process:
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return start_module(*confined(folder, "sh", "-c", script), env=environment(), **streams)


def test_where_no_proxy_answers_connections_fail_and_it_is_said_once(tmp_path: Path) -> None:
    script = (
        "for n in 1 2; do curl -sS --max-time 5 http://site.test/; done; curl -sS --max-time 5 https://203.0.113.9/"
    )
    port = free_port()
    done = run_module(*confined(tmp_path, "sh", "-c", script, port=port), env=environment(), timeout=60)
    assert done.returncode not in (0, 125)
    assert done.stderr.count("curl: ") == 3
    assert done.stderr.count(f"interlock confine: the proxy on 127.0.0.1:{port} does not answer") == 1


def test_the_launchers_keys_are_not_the_agents(tmp_path: Path) -> None:
    search = [sys.executable, "-c", SEARCH]
    for command, found in (
        (search, "found True"),
        ([sys.executable, "-m", *confined(tmp_path, *search)], "not found False"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "tests.sandbox.equipped", *command],
            cwd=REPOSITORY,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            start_new_session=True,
        )
        assert done.stdout.strip() == found, done.stderr


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -KILL $$", 137), ("exit 0", 0)])
def test_the_exit_code_is_the_agents(tmp_path: Path, script: str, code: int) -> None:
    assert run_module(*confined(tmp_path, "sh", "-c", script), env=environment()).returncode == code


def test_a_signal_goes_to_the_agent_and_streams_are_its_own(tmp_path: Path) -> None:
    with start(
        tmp_path, "trap 'echo caught; exit 5' TERM; read word; echo got $word; while :; do sleep 0.05; done"
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"it\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"got it\n"
        process.terminate()
        assert process.stdout.readline() == b"caught\n"
        assert process.wait(PATIENCE) == 5


@pytest.mark.parametrize("way", ["agent ends", "killed"])
def test_nothing_of_the_agent_outlives_it_or_its_keeper(tmp_path: Path, way: str) -> None:
    script = "(setsid sh -c 'echo child; sleep 60') & read line; exit 3"
    with start(tmp_path, script) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"child\n"
        if way == "killed":
            process.kill()
        else:
            process.stdin.close()
        assert process.stdout.read() == b""  # the last process that has it is gone
        assert process.wait(PATIENCE) == (-signal.SIGKILL if way == "killed" else 3)


STEPS = [
    "enter_user_namespace",
    "enter_private_namespaces",
    "arrange_files",
    "arrange_network",
    "renounce_capabilities",
    "install_filter",
]


@pytest.mark.parametrize("step", [*STEPS, "!arrange_network", "!start_gateway", "!install_filter", "!_start_agent"])
def test_where_a_step_fails_the_agent_is_not_started(tmp_path: Path, step: str) -> None:
    command = confined(tmp_path, "touch", str(tmp_path / "started"), module=("tests.confine.failing", step))
    done = run_module(*command, env=environment())
    assert done.returncode == 125, done.stderr
    assert "what the test" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "started").exists()


@contextlib.contextmanager
def forbidden() -> Iterator[list[str]]:
    """Return a command that runs another where user namespaces are forbidden."""
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    yield ["unshare", "-Ur", "sh", "-c", script, "sh"]


def test_where_the_kernel_forbids_namespaces_it_is_said_by_which_setting(tmp_path: Path) -> None:
    with forbidden() as prefix:
        command = [*prefix, sys.executable, "-m", *confined(tmp_path, "touch", str(tmp_path / "started"))]
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment(), capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 125
    assert "'touch' was not started" in done.stderr
    assert "user.max_user_namespaces is 0" in done.stderr
    assert not (tmp_path / "started").exists()
