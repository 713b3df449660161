"""Agents propose rules to the proxy itself, with the SDKs' own clients of both eras; and nothing else goes there."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.acceptance.python_routes import trusting
from tests.support.harness import Interlock, free_port, interlock_cli, send_raw, start_interlock
from tests.support.node_tools import NodeClients, proxy_environment
from tests.support.timeouts import PATIENCE

POLICY = """\
version: 1
default: deny
rules:
  - {id: notes, action: allow, tools: [read_notes]}
  - id: not-the-muted
    action: deny
    agents: [muted]
    tools: ["policy.*"]
egress:
  default: deny
  rules: [{id: here, action: allow, hosts: [127.0.0.1]}]
"""
HOST = "interlock.internal"
MODERN = "2026-07-28"
DENIAL = "mcp-interlock/denial"


def rule(agent: str = "agent", **changes: Any) -> dict[str, Any]:
    call = {"agent": agent, "server": "files", "tool": "read_file", "arguments": {"path": "/srv/notes/a"}}
    other = {**call, "arguments": {"path": "/etc/passwd"}}
    tests = [{"call": call, "expect": "allow"}, {"call": other, "expect": "no_match"}]
    named = {"agents": [agent], "servers": ["files"], "tools": ["read_file"]}
    when = {"all": [{"arg": "path", "path_under": ["/srv/notes"]}]}
    return {"id": "my-notes", "action": "allow", **named, "when": when, "tests": tests, **changes}


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    directory = tmp_path_factory.mktemp("proposals")
    with start_interlock(directory, policy=POLICY, settings={"rule_proposals": True}) as running:
        yield running


@contextlib.asynccontextmanager
async def client(interlock: Interlock, era: str, scheme: str) -> AsyncIterator[Client]:
    verify = trusting(interlock.ca_file)
    async with httpx2.AsyncClient(proxy=interlock.proxy_url, verify=verify, trust_env=False, timeout=PATIENCE) as http:
        transport = streamable_http_client(f"{scheme}://{HOST}/mcp", http_client=http)
        async with Client(transport, mode=era, read_timeout_seconds=PATIENCE) as opened:
            yield opened


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("era", ["legacy", MODERN, "auto"])
async def test_a_client_proposes_a_rule_and_nothing_changes(interlock: Interlock, era: str, scheme: str) -> None:
    async with client(interlock, era, scheme) as opened:
        assert [tool.name for tool in (await opened.list_tools()).tools] == ["policy.propose"]
        given = {"rule": rule(id=f"notes-{era}-{scheme}"), "why": "I read notes \x1b[31m every day"}
        result = await opened.call_tool("policy.propose", given)
        assert not result.is_error, text_of(result)
        told = result.structured_content
        again = await opened.call_tool("policy.propose", given)
    assert told is not None
    assert told["status"] == "waiting"
    assert again.structured_content == told, "the same rule was stored twice"
    shown = interlock.cli("policy", "proposals", "show", told["proposal_id"], "--json").stdout
    listed, *_, proof = map(json.loads, shown.splitlines())
    assert (proof["kind"], proof["lets_more_through"], proof["witness"]["agent"]) == ("proof", "yes", "agent")
    assert (listed["agent"], listed["state"]) == ("agent", "waiting")
    assert "path_under" in listed["text"]
    events = [one for one in interlock.events() if one.get("detail", {}).get("rule_proposal_id") == told["proposal_id"]]
    assert [one["kind"] for one in events] == ["rule_proposed"]
    decided = [one for one in interlock.events() if one.get("call_id") == events[0]["call_id"]]
    assert {one.get("reason") for one in decided if one["kind"] == "decided"} == {"rule_proposed"}


@pytest.mark.parametrize("name", ["v1", "v2"])
def test_the_typescript_sdks_propose_as_well(interlock: Interlock, name: str) -> None:
    with NodeClients(proxy_environment(interlock.proxy_url, interlock.ca_file)) as clients:
        order = {"url": f"http://{HOST}/mcp", "arguments": {"rule": rule(id=f"notes-{name}"), "why": "notes"}}
        report = clients.order("propose", {**order, "sdk": name})
    assert report["tools"] == ["policy.propose"], report
    assert report["result"]["structuredContent"]["status"] == "waiting", report


BAD = {
    "no-tests": ({"tests": []}, "no_match"),
    "a-test-that-fails": ({"when": {"arg": "path", "path_under": "/srv/other"}}, "test 1 expects allow"),
    "for-everybody": ({"agents": None}, "for you alone"),
    "for-others-too": ({"agents": ["*"]}, "for you alone"),
    "a-misspelt-field": ({"tols": ["x"]}, "did you mean 'tools'"),
    "an-id-of-the-policy": ({"id": "notes"}, "id must be a new name"),
    "an-id-with-control-characters": ({"id": "a\x1b[2Jb"}, "should match pattern"),
    "an-id-of-many-letters": ({"id": "a" * 81}, "id must be a new name"),
    "another-service": ({"action": "external"}, ""),
    "a-large-rule": ({"description": "x" * 20_000}, "at most 16384"),
    "a-bad-expression": ({"when": {"arg": "path", "matches": "("}}, ""),
}


@pytest.mark.parametrize("case", BAD)
def test_a_rule_that_is_no_good_is_refused_with_what_to_write(interlock: Interlock, case: str) -> None:
    changes, words = BAD[case]
    changed = {key: value for key, value in rule(case, **changes).items() if value is not None}
    denial, text = propose(interlock, {"rule": changed, "why": "x"}, agent_of(interlock, case))
    assert denial["reason"] == "bad_rule_proposal", text
    assert words.lower() in text.lower()


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"rule": rule()},
        {"rule": "id: x", "why": "x"},
        {"rule": [rule()], "why": "x"},
        {"rule": rule(), "why": ""},
        {"rule": rule(), "why": "x" * 501},
        {"rule": rule(), "why": "x", "accept": True},
        {"rule": {"version": 1, "default": "allow"}, "why": "x"},
        {"rule": {"id": "a", "include": ["/etc/passwd"]}, "why": "x"},
    ],
    ids=range(9),
)
def test_arguments_of_another_form_are_refused(interlock: Interlock, arguments: dict[str, Any]) -> None:
    denial, text = propose(interlock, arguments, "")
    assert denial["reason"] == "bad_rule_proposal", text


def test_a_person_accepts_and_rejects_and_the_policy_stays(interlock: Interlock, tmp_path: Path) -> None:
    token, ids = agent_of(interlock, "writer"), []
    for number in range(2):
        given = {"rule": rule("writer", id=f"writer-{number}"), "why": "\x1b[2Jnotes\nof today"}
        ids.append(told(interlock, given, token)["proposal_id"])
    version = json.loads(interlock.cli("status", "--json").stdout)["policy_version"]
    shown = (
        interlock.cli("policy", "proposals", "list").stdout
        + interlock.cli("policy", "proposals", "show", ids[0]).stdout
    )
    assert "writer-0" in shown
    assert "\x1b[2J" not in shown
    file = tmp_path / "rule.yaml"
    accepted = interlock.cli("policy", "proposals", "accept", ids[0], "-o", str(file))
    assert accepted.returncode == 0, accepted.stderr
    assert "The second lets this call through" in accepted.stdout
    assert interlock_cli("policy", "check", "--strict", str(file)).returncode == 0
    assert interlock_cli("policy", "test", str(file)).returncode == 0
    again = interlock.cli("policy", "proposals", "reject", ids[0], "--reason", "late")
    assert "accepted already" in again.stderr
    assert interlock.cli("policy", "proposals", "reject", ids[1], "--reason", "too wide").returncode == 0
    waiting = interlock.cli("policy", "proposals", "list", "--state", "waiting", "--json").stdout
    assert not any(one in waiting for one in ids)
    assert json.loads(interlock.cli("status", "--json").stdout)["policy_version"] == version
    kinds = [one["kind"] for one in interlock.events() if one.get("detail", {}).get("rule_proposal_id") in ids]
    assert kinds == ["rule_proposed"] * 2 + ["rule_accepted", "rule_rejected"]


def test_a_secret_is_neither_stored_nor_recorded(interlock: Interlock) -> None:
    secret = "ghp_" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5"
    denial, _ = propose(interlock, {"rule": rule(description=secret), "why": "x"}, agent_of(interlock, "leaky"))
    assert denial["reason"] == "secret_found"
    assert secret not in json.dumps(interlock.events())


def test_a_rule_of_the_policy_can_deny_it(interlock: Interlock) -> None:
    token = agent_of(interlock, "muted")
    denial, _ = propose(interlock, {"rule": rule("muted"), "why": "x"}, token)
    assert (denial["reason"], denial["rule"]) == ("policy_denied", "not-the-muted")


def test_a_halted_agent_proposes_nothing(interlock: Interlock) -> None:
    token = agent_of(interlock, "stopped")
    made = json.loads(interlock.cli("halt", "--agent", "stopped", "--reason", "test", "--json").stdout)
    deadline = time.monotonic() + PATIENCE
    ping = {"jsonrpc": "2.0", "id": 1, "method": "prompts/list"}
    while ask(interlock, ping, token)[0]["reason"] != "halted" and time.monotonic() < deadline:
        pass  # a worker sees it within a tenth of a second
    denial, _ = propose(interlock, {"rule": rule("stopped"), "why": "x"}, token)
    assert denial["reason"] == "halted"
    assert interlock.cli("resume", made["halt_id"], "--reason", "test").returncode == 0


def test_an_agent_proposes_so_much_in_an_hour(interlock: Interlock) -> None:
    token, reasons = agent_of(interlock, "eager"), []
    for number in range(11):
        denial, _ = propose(interlock, {"rule": rule("eager", id=f"eager-{number}"), "why": "x"}, token)
        reasons.append(denial.get("reason"))
    assert reasons == [None] * 10 + ["too_many_rule_proposals"]


def test_a_refusal_by_default_tells_an_agent_that_it_may_propose(interlock: Interlock) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "other", "arguments": {}}}
    with http(interlock) as opened:
        result = opened.post(f"http://127.0.0.1:{free_port()}/mcp", json=body).json()["result"]
    assert result["_meta"][DENIAL]["reason"] == "default_deny"
    assert f"call policy.propose of the MCP server http://{HOST}/mcp" in result["content"][0]["text"]


@pytest.mark.parametrize("name", ["other", "policy.propose_commit", "Policy.Propose", "read_notes"])
def test_no_other_tool_is_there(interlock: Interlock, name: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {}}}
    assert ask(interlock, body, "")[0]["reason"] == "only_rule_proposals"


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [("GET", "/mcp", 405), ("DELETE", "/mcp", 405), ("GET", "/", 405), ("POST", "/other", 400), ("PUT", "/mcp", 400)],
)
def test_the_host_answers_nothing_else(interlock: Interlock, method: str, target: str, status: int) -> None:
    with http(interlock) as opened:
        body = b"plain text" if method in ("POST", "PUT") else None
        answer = opened.request(method, f"http://{HOST}{target}", content=body)
    assert answer.status_code == status
    assert "only_rule_proposals" in answer.text


@pytest.mark.parametrize("method", ["prompts/list", "resources/read", "sampling/createMessage", "tasks/list"])
def test_other_methods_are_refused(interlock: Interlock, method: str) -> None:
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"uri": "file:///etc/passwd"}}
    assert ask(interlock, body, "")[0]["reason"] == "only_rule_proposals"


def test_no_tunnel_and_no_upload_reaches_anything_by_that_name(interlock: Interlock) -> None:
    port = free_port()
    with http(interlock) as opened:
        large = opened.post(f"http://{HOST}/mcp", content=b"x" * (17 << 20))
        other = opened.get(f"http://{HOST}:{port}/mcp")
    assert large.status_code >= 400
    assert other.status_code in (403, 502)
    raw = send_raw("127.0.0.1", interlock.port, [b"GET / HTTP/1.1\r\n\r\n"], connect=f"{HOST}:443")
    assert b"200 Connection established" not in raw or raw.endswith(b"\r\n\r\n"), raw


def test_without_the_setting_nothing_is_there(tmp_path: Any) -> None:
    with start_interlock(tmp_path) as off, http(off) as opened:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        answer = opened.post(f"http://{HOST}/mcp", json=body)
        plain = opened.get(f"http://{HOST.upper()}:8080/")
    assert answer.json()["error"]["data"]["reason"] == "egress_denied"
    assert "policy.propose" not in answer.text
    assert (plain.status_code, "egress_denied" in plain.text) == (403, True)


def http(interlock: Interlock, token: str = "") -> httpx2.Client:
    name, _, secret = token.partition(":")
    proxy = httpx2.Proxy(interlock.proxy_url, auth=(name, secret) if token else None)
    return httpx2.Client(proxy=proxy, trust_env=False, timeout=PATIENCE)


def ask(interlock: Interlock, body: dict[str, Any], token: str) -> tuple[dict[str, Any], str]:
    """Return what the refusal of a message says, as data and as text; nothing of one that is answered."""
    with http(interlock, token) as opened:
        answer = opened.post(f"http://{HOST}/mcp", json=body).json()
    if "error" in answer:
        return answer["error"]["data"], answer["error"]["message"]
    result = answer["result"]
    return result.get("_meta", {}).get(DENIAL, {}), result["content"][0]["text"]


def propose(interlock: Interlock, arguments: dict[str, Any], token: str) -> tuple[dict[str, Any], str]:
    params = {"name": "policy.propose", "arguments": arguments}
    return ask(interlock, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, token)


def told(interlock: Interlock, arguments: dict[str, Any], token: str) -> dict[str, Any]:
    """Return what the proxy answers to a good proposal."""
    params = {"name": "policy.propose", "arguments": arguments}
    with http(interlock, token) as opened:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = opened.post(f"http://{HOST}/mcp", json=body).json()["result"]
    found: dict[str, Any] = answer["structuredContent"]
    return found


def agent_of(interlock: Interlock, name: str) -> str:
    """Return the name and the token of a new agent."""
    done = interlock.cli("agents", "add", name)
    assert done.returncode == 0, done.stderr
    return f"{name}:{done.stdout.strip()}"
