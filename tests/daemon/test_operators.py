"""Operators reach the running proxy, and agents never reach the operators' side through it."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from proxy.core.proposals import Proposal, State
from proxy.identity.token_file import OperatorTokens, read_token
from proxy.store.open_store import open_store
from tests.daemon.waiting import next_refusal, refusals
from tests.support.harness import Interlock, ServerHandle, free_port, interlock_cli, start_interlock
from tests.support.proposal_fixture import new_proposal
from tests.support.raw_socket import parse_answers, send_raw
from tests.support.timeouts import PATIENCE

OPEN = """\
version: 1
default: allow
egress:
  default: allow
  rules:
    - {id: everything, action: allow, hosts: ["*"]}
"""
LOOPBACK = [
    "127.0.0.1",
    "127.0.0.7",
    "localhost",
    "LOCALHOST.",
    "web.test",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::1]",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "0.0.0.0",
    "[::]",
    "0",
]


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    flags = ["--operator-listen", "127.0.0.1:0"]
    folder = tmp_path_factory.mktemp("proxy")
    with start_interlock(folder, policy=OPEN, program=["tests.daemon.named"], flags=flags) as running:
        yield running


def operator_port(interlock: Interlock) -> int:
    return int(interlock.run["operator_listen"].rpartition(":")[2])


def token(interlock: Interlock) -> str:
    return read_token(interlock.state_dir / "keys" / "operator.token")


def pend(state_dir: Path, proposal_id: str, **fields: object) -> Proposal:
    """Lay a proposal in the store of a proxy, as the gate does."""
    now = time.time()
    made = new_proposal(proposal_id, created_at=now, expires_at=now + 600, arguments_hash=proposal_id, **fields)

    async def keep() -> Proposal:
        store = open_store(None, state_dir)
        try:
            return await store.propose(made, now)
        finally:
            await store.close()

    return asyncio.run(keep())


def machine_addresses() -> list[str]:
    """Return this machine's addresses that are not loopback."""
    found = []
    for family, far in ((socket.AF_INET, "192.0.2.123"), (socket.AF_INET6, "2001:db8::1")):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((far, 9))
            except OSError:
                continue
            found.append(str(probe.getsockname()[0]))
    return found


def reason_of(received: bytes) -> tuple[int, str]:
    answer = parse_answers(received)[0]
    return answer.status, json.loads(answer.body)["error"]["data"]["reason"]


def listened_to(port: int) -> bool:
    """Return whether the port answers to an operator's question without a token, as only the API does."""
    answer = httpx2.get(f"http://127.0.0.1:{port}/proposals", timeout=PATIENCE, trust_env=False)
    return answer.status_code == 401


def test_the_first_start_makes_an_operator_and_a_socket_for_the_owner_alone(interlock: Interlock):
    assert OperatorTokens(interlock.state_dir).holder(token(interlock)) == "operator"
    path = Path(interlock.run["operator_socket"])
    assert path == interlock.state_dir / "operator.sock"
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert listened_to(operator_port(interlock))
    assert str(path) in interlock.cli("status").stdout


@pytest.mark.parametrize("host", LOOPBACK)
def test_the_operators_port_is_not_reached_by_any_spelling_or_way(interlock: Interlock, host: str):
    target = f"{host}:{operator_port(interlock)}"
    bearer = f"Authorization: Bearer {token(interlock)}"
    get = f"GET http://{target}/proposals HTTP/1.1\r\nHost: {target}\r\n{bearer}\r\n\r\n"
    post = (
        f"POST http://{target}/proposals/x/approve HTTP/1.1\r\nHost: {target}\r\n{bearer}\r\nContent-Length: 0\r\n\r\n"
    )
    connect = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"
    upgrade = get.replace("\r\n\r\n", "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    for request in (get, post, connect, upgrade):
        assert reason_of(send_raw("127.0.0.1", interlock.port, [request.encode()])) == (403, "egress_denied"), request


def test_a_request_in_an_origin_form_that_names_the_port_by_its_host_is_refused(interlock: Interlock):
    target = f"127.0.0.1:{operator_port(interlock)}"
    for host in (target, f"localhost:{operator_port(interlock)}"):
        received = send_raw("127.0.0.1", interlock.port, [f"GET /proposals HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()])
        assert b'"proposals"' not in received
        assert parse_answers(received)[0].status >= 400


def test_an_mcp_call_to_the_operators_port_is_denied(interlock: Interlock):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "approve", "arguments": {}}}
    with httpx2.Client(proxy=interlock.proxy_url, timeout=PATIENCE, trust_env=False) as http:
        answer = http.post(f"http://localhost:{operator_port(interlock)}/proposals/x/approve", json=body).json()
    assert answer["result"]["_meta"]["mcp-interlock/denial"]["reason"] == "egress_denied"


def test_a_refusal_tells_that_it_was_the_operators_port(interlock: Interlock):
    seen = len(refusals(interlock))
    target = f"127.0.0.1:{operator_port(interlock)}"
    send_raw("127.0.0.1", interlock.port, [f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()])
    assert next_refusal(interlock, seen)["detail"] == {"egress": "operator_port"}


def test_other_ports_of_the_machine_are_reached_as_before(interlock: Interlock, web: ServerHandle):
    with httpx2.Client(proxy=interlock.proxy_url, timeout=PATIENCE, trust_env=False) as http:
        assert http.get(f"{web.url}/echo").status_code == 200


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_a_port_on_every_address_is_reached_by_none_of_the_machine_s(tmp_path: Path, listen: str):
    flags = ["--operator-listen", listen]
    with start_interlock(tmp_path, policy=OPEN, program=["tests.daemon.named"], flags=flags) as interlock:
        for host in (*LOOPBACK, *(f"[{a}]" if ":" in a else a for a in machine_addresses())):
            target = f"{host}:{operator_port(interlock)}"
            for line in (f"GET http://{target}/proposals", f"CONNECT {target}"):
                received = send_raw(
                    "127.0.0.1", interlock.port, [f"{line} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()]
                )
                assert reason_of(received) == (403, "egress_denied"), target


@pytest.mark.skipif(not machine_addresses(), reason="this machine has no address beside loopback")
def test_a_port_on_one_address_of_the_machine_is_not_reached_there(tmp_path: Path):
    address = machine_addresses()[0]
    shown = f"[{address}]" if ":" in address else address
    with start_interlock(tmp_path, policy=OPEN, flags=["--operator-listen", f"{shown}:0"]) as interlock:
        target = f"{shown}:{operator_port(interlock)}"
        for line in (f"GET http://{target}/proposals", f"CONNECT {target}"):
            received = send_raw("127.0.0.1", interlock.port, [f"{line} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()])
            assert reason_of(received) == (403, "egress_denied")
        assert "without TLS" in interlock.errors()


def test_a_reverse_proxy_that_points_at_the_operators_port_forwards_nothing(tmp_path: Path):
    port = free_port()
    flags = ["--operator-listen", f"127.0.0.1:{port}"]
    with start_interlock(tmp_path, f"reverse:http://localhost:{port}", OPEN, flags=flags) as interlock:
        headers = {"Authorization": f"Bearer {token(interlock)}"}
        answer = httpx2.get(f"{interlock.url}/proposals", headers=headers, timeout=PATIENCE, trust_env=False)
        assert (answer.status_code, answer.json()["error"]["data"]["reason"]) == (403, "egress_denied")


def test_without_the_setting_no_tcp_port_is_opened(tmp_path: Path):
    with start_interlock(tmp_path, policy=OPEN) as interlock:
        assert interlock.run["operator_listen"] is None
        assert interlock.cli("proposals", "list").returncode == 0


def test_an_operators_address_that_is_taken_stops_the_start(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = interlock_cli(
            "up",
            *("--listen", "127.0.0.1:0", "--state-dir", str(tmp_path), "--operator-listen", f"127.0.0.1:{port}"),
        )
    assert done.returncode == 1
    assert f"operator_listen = '127.0.0.1:{port}'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_proposal_is_approved_by_the_command_and_recorded_with_who_and_why(interlock: Interlock):
    made = pend(interlock.state_dir, "0198aaaa-0000-7000-8000-000000000001")
    (row,) = map(json.loads, interlock.cli("proposals", "list", "--state", "pending", "--json").stdout.splitlines())
    assert row["proposal_id"] == made.proposal_id
    done = interlock.cli("proposals", "approve", made.proposal_id[:10], "--reason", "invoice 4711", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == State.APPROVED
    event = interlock.events()[-1]
    assert (event["kind"], event["tool"], event["call_id"]) == ("approved", "transfer_funds", "call-1")
    assert (event["detail"]["operator"], event["detail"]["reason"]) == ("operator", "invoice 4711")
    assert token(interlock) not in interlock.errors()


def test_a_proposal_is_rejected_through_the_tcp_port_by_the_operator_whose_token_it_is(interlock: Interlock):
    made = pend(interlock.state_dir, "0198bbbb-0000-7000-8000-000000000002")
    alice = interlock.cli("operators", "add", "alice").stdout.strip()
    url = f"http://{interlock.run['operator_listen']}/proposals/{made.proposal_id}/reject"
    headers = {"Authorization": f"Bearer {alice}"}
    answer = httpx2.post(url, headers=headers, json={"reason": "no"}, timeout=PATIENCE, trust_env=False)
    assert (answer.status_code, answer.json()["state"], answer.json()["operator"]) == (200, "rejected", "alice")
    assert interlock.events()[-1]["detail"]["operator"] == "alice"


def test_an_agents_token_opens_nothing(interlock: Interlock):
    agent = interlock.cli("agents", "add", "bot").stdout.strip()
    url = f"http://{interlock.run['operator_listen']}/proposals"
    answer = httpx2.get(url, headers={"Authorization": f"Bearer {agent}"}, timeout=PATIENCE, trust_env=False)
    assert answer.status_code == 401
    event = interlock.events()[-1]
    assert (event["kind"], event["detail"]["presented"]) == ("operator_refused", "an agent's token")
    assert agent not in interlock.errors()


def test_an_operators_token_is_no_agents(interlock: Interlock, web: ServerHandle):
    proxy = f"http://operator:{token(interlock)}@127.0.0.1:{interlock.port}"
    with httpx2.Client(proxy=proxy, timeout=PATIENCE, trust_env=False) as http:
        assert http.get(f"{web.url}/echo").status_code == 407


def test_a_stop_takes_the_socket_away_and_a_kill_does_not_hinder_the_next_start(tmp_path: Path):
    with start_interlock(tmp_path, policy=OPEN) as interlock:
        interlock.stop()
        assert not (interlock.state_dir / "operator.sock").exists()
    before = token(interlock)
    (interlock.state_dir / "operator.sock").write_text("left behind")
    with start_interlock(tmp_path, policy=OPEN) as interlock:
        assert token(interlock) == before
        assert interlock.cli("proposals", "list").returncode == 0
