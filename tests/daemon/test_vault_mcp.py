"""Values in calls of tools: in arguments, in the headers that mirror them, for bound tools alone; masked in results."""

from __future__ import annotations

import json
import re
import ssl
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from proxy.core.vault import Place
from tests.acceptance.python_routes import Route
from tests.acceptance.test_two_phase import propose, ticket
from tests.daemon.vault_scene import VALUE, Vault
from tests.support.harness import Certificates, Interlock, ServerHandle, start_interlock, start_python_server
from tests.support.timeouts import PATIENCE

POLICY = """\
version: 1
default: allow
rules:
  - {id: scrub, action: redact, tools: ["*"], on: [arguments, result], detectors: [secrets]}
  - {id: two, action: two_phase, tools: [danger]}
"""
ERAS = ["legacy", "2026-07-28"]
HERE = ("127.0.0.1",)
IN_BODY = (Place.BODY,)
_LANE = re.compile(r"^interlock_lane_calls_total ([0-9.]+)", re.MULTILINE)


@dataclass
class Scene:
    interlock: Interlock
    server: ServerHandle
    vault: Vault

    def route(self) -> Route:
        found = self.interlock
        return Route(self.server, self.server.url, "/mcp", found, found.proxy_url, found.ca_file)

    def arguments(self) -> Any:
        return self.server.executions()[-1]["arguments"]

    def lane_calls(self) -> float:
        with urllib.request.urlopen(f"{self.interlock.health_url}/metrics", timeout=PATIENCE) as answer:
            found = _LANE.search(answer.read().decode())
        return float(found[1]) if found else 0.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vault")


@pytest.fixture(scope="module", params=[(), ("--stateless", "--json")], ids=["stream", "json"])
def server(folder: Path, request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[ServerHandle]:
    where = folder / f"server{len(request.param)}"
    with start_python_server("python_modern", where, certificates=certificates, flags=request.param) as running:
        yield running


@pytest.fixture(scope="module", params=["lane", "layers"])
def interlock(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest, certificates: Certificates
) -> Iterator[Interlock]:
    settings = {"fast_lane": request.param == "lane", "fast": True}
    with start_interlock(
        tmp_path_factory.mktemp(request.param), policy=POLICY, upstream_ca=certificates.ca_file, settings=settings
    ) as running:
        yield running


@pytest.fixture(scope="module")
def keys(folder: Path, interlock: Interlock) -> dict[str, str]:
    vault = Vault(folder / "sources", interlock.state_dir)
    return {
        "any": vault.add("any", hosts=HERE, places=IN_BODY),
        "echo": vault.add("echo", "bound-to-echo-1", hosts=HERE, tools=("ech?",), places=(*IN_BODY, Place.HEADER)),
        "like": vault.add("like", "ghp_" + "Zx8Kq2" * 6, hosts=HERE, places=IN_BODY, like="ghp_"),
        "head": vault.add("head", "in-a-header-1", hosts=HERE),
    }


@pytest.fixture
def scene(folder: Path, interlock: Interlock, server: ServerHandle) -> Scene:
    return Scene(interlock, server, Vault(folder / "sources", interlock.state_dir))


def text_of(result: Any) -> str:
    return str(result.content[0].text)


@pytest.mark.parametrize("era", ERAS)
async def test_a_value_stands_in_arguments_and_results_have_the_placeholder(scene, keys, era: str) -> None:
    async with scene.route().client(era) as client:
        for number in range(3):
            result = await client.call_tool("echo", {"text": f"{number} {keys['any']}"})
            assert scene.arguments() == {"text": f"{number} {VALUE}"}
            assert text_of(result) == f"{number} {keys['any']}"
        result = await client.call_tool("echo", {"text": f"mine: {VALUE}"})
        assert text_of(result) == f"mine: {keys['any']}"


@pytest.mark.parametrize("era", ERAS)
async def test_a_placeholder_that_looks_like_a_secret_is_none(scene, keys, era: str) -> None:
    async with scene.route().client(era) as client:
        result = await client.call_tool("echo", {"text": keys["like"]})
        assert scene.arguments() == {"text": "ghp_" + "Zx8Kq2" * 6}
        assert text_of(result) == keys["like"]
        other = keys["like"][:-4] + "AAAA"
        assert "[secret" in text_of(await client.call_tool("echo", {"text": other}))


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_a_credential_is_not_bound_to_gets_no_value(scene, keys, era: str) -> None:
    async with scene.route().client(era) as client:
        await client.call_tool("echo", {"text": keys["echo"]})
        assert scene.arguments() == {"text": "bound-to-echo-1"}
        before = len(scene.server.executions())
        result = await client.call_tool("read_file", {"path": keys["echo"]})
        assert result.is_error
        assert (result.meta or {})["mcp-interlock/denial"]["reason"] == "credential_not_bound"
        assert "'echo'" in text_of(result)
        assert len(scene.server.executions()) == before


@pytest.mark.parametrize("era", ERAS)
async def test_a_value_in_a_header_goes_with_every_message_of_a_session(scene, keys, era: str) -> None:
    route = scene.route()
    async with route.http(headers={"Authorization": f"Bearer {keys['head']}"}) as http:
        transport = streamable_http_client(route.url + route.path, http_client=http)
        async with Client(transport, mode=era, read_timeout_seconds=PATIENCE) as client:
            for _ in range(3):
                assert text_of(await client.call_tool("echo", {"text": "hello"})) == "hello"


async def test_records_and_hashes_see_the_placeholder(scene) -> None:
    name, value = f"recorded-{scene.server.port}", f'sk"live-{scene.server.port}-98765'
    held = scene.vault.add(name, value, hosts=HERE, places=IN_BODY)
    async with scene.route().client("legacy") as client:
        await client.call_tool("echo", {"text": held})
        # A proposal is bound to the arguments as they came, and so is its commit.
        await client.list_tools()
        proposed = await propose(client, "danger", {"note": held})
        await client.call_tool("danger_commit", {"note": held, **ticket(proposed)})
    assert scene.arguments() == {"note": value}
    events = scene.interlock.events()
    decided = [event for event in events if event["kind"] == "decided" and event.get("tool") == "echo"][-1]
    assert decided["arguments"] == {"text": held}
    assert decided["detail"]["credentials"] == [name]
    written = [json.dumps(events).encode(), scene.interlock.errors().encode()]
    written += [file.read_bytes() for file in scene.interlock.state_dir.rglob("*") if file.is_file()]
    assert not any(b"live-%d-98765" % scene.server.port in each for each in written)


def post(http: httpx2.Client, url: str, text: str, **headers: str) -> str:
    """Call `echo` as a client of 2025-03-26 without a session does; return the text of the answer."""
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": text}},
    }
    fields = {"Accept": "application/json, text/event-stream", **headers}
    answer = http.post(url, json=message, headers=fields)
    found: str = json.loads(answer.text.partition("data: ")[2] or answer.text)["result"]["content"][0]["text"]
    return found


@pytest.fixture(scope="module")
def stateless(folder: Path, certificates: Certificates) -> Iterator[ServerHandle]:
    flags = ("--stateless", "--json")
    with start_python_server("python_modern", folder / "one", certificates=certificates, flags=flags) as running:
        yield running


def test_in_the_lane_a_value_is_masked_and_none_is_put_in(folder: Path, interlock, stateless, keys) -> None:
    scene = Scene(interlock, stateless, Vault(folder / "sources", interlock.state_dir))
    route = scene.route()
    with httpx2.Client(proxy=route.proxy, verify=scene_trust(route), trust_env=False, timeout=PATIENCE) as http:
        url = f"{route.url}/mcp"
        assert post(http, url, keys["any"]) == keys["any"]
        before = scene.lane_calls()
        for _ in range(4):
            assert post(http, url, VALUE) == keys["any"]
            assert post(http, url, "plain") == "plain"
            assert post(http, url, keys["any"]) == keys["any"]
            assert scene.arguments() == {"text": VALUE}
        # A placeholder in a header that varies from call to call.
        assert post(http, url, "x", **{"X-Request-Id": "r-1"}) == "x"
        assert post(http, url, "x", **{"X-Request-Id": keys["head"]}) == "x"
        calls = scene.lane_calls() - before
    is_lane = scene.interlock.state_dir.parent.name.startswith("lane")
    assert (calls >= 8) if is_lane else (calls == 0)


def scene_trust(route: Route) -> Any:
    return ssl.create_default_context(cafile=route.ca_file)


async def test_a_session_of_the_legacy_transport_lives_on_after_a_refusal(folder: Path, interlock, certificates, keys):
    with start_python_server("python_sse", folder / "sse", certificates=certificates) as server:
        route = Scene(interlock, server, Vault(folder / "sources", interlock.state_dir)).route()

        def http(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx2.AsyncClient:
            held = {**(headers or {}), "Authorization": f"Bearer {keys['head']}"}
            return route.http(headers=held, timeout=timeout, auth=auth)

        transport = sse_client(f"{server.url}/sse", httpx_client_factory=http)
        async with Client(transport, mode="legacy", read_timeout_seconds=PATIENCE) as client:
            assert text_of(await client.call_tool("echo", {"text": "in-a-header-1"})) == keys["head"]
            refused = await client.call_tool("danger", {"note": "x"})
            assert (refused.meta or {})["mcp-interlock/denial"]["reason"] == "two_phase_required"
            assert text_of(await client.call_tool("echo", {"text": "after"})) == "after"
