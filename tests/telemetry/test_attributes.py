from __future__ import annotations

import warnings

import pytest

from proxy.telemetry import attributes
from tests.support.telemetry_events import CALL, COMPLETED, DENIED, exported

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from opentelemetry.semconv._incubating.attributes import (
        gen_ai_attributes,
        jsonrpc_attributes,
        mcp_attributes,
    )
    from opentelemetry.semconv.attributes import error_attributes, network_attributes, server_attributes

# `gen_ai.tool.call.arguments` and `gen_ai.prompt.name` are in some releases of the package and not in others.
KNOWN = {
    value
    for module in (
        gen_ai_attributes, jsonrpc_attributes, mcp_attributes, error_attributes, network_attributes, server_attributes,
    )
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}  # fmt: skip


def test_every_name_is_one_of_the_conventions_or_our_own() -> None:
    event = exported(DENIED, with_arguments=True)
    prompt = exported(CALL | {"method": "prompts/get", "arguments": {"name": "p"}})
    resource = exported(CALL | {"method": "resources/read", "arguments": {"uri": "file:///a"}})
    said = (
        attributes.operation(event) | attributes.request(event) | attributes.server(event) | attributes.verdict(event)
        | attributes.arguments(event) | attributes.asked_for(prompt) | attributes.asked_for(resource)
    )  # fmt: skip
    assert {name for name in said if not name.startswith("interlock.")} - KNOWN == set()
    assert said["gen_ai.prompt.name"] == "p"
    assert said["mcp.resource.uri"] == "file:///a"
    assert said["gen_ai.tool.call.arguments"] == '{"path":"/etc/hosts"}'


@pytest.mark.parametrize(
    ("server", "transport", "said"),
    [
        ("files.example", "http", {"server.address": "files.example"}),
        ("files.example:8443", "http", {"server.address": "files.example", "server.port": 8443}),
        ("[::1]:80", "http", {"server.address": "::1", "server.port": 80}),
        ("::1", "http", {"server.address": "::1"}),
        ("files", "stdio", {}),
        (None, "http", {}),
    ],
)
def test_a_servers_address(server: str | None, transport: str, said: dict[str, object]) -> None:
    assert attributes.server(exported(CALL | {"server": server, "transport": transport})) == said


@pytest.mark.parametrize(
    ("transport", "said"),
    [
        ("http", ("tcp", "http")),
        ("sse", ("tcp", "http")),
        ("websocket", ("tcp", "websocket")),
        ("stdio", ("pipe", None)),
        ("hook", (None, None)),
    ],
)
def test_the_network_by_transport(transport: str, said: tuple[str | None, str | None]) -> None:
    found = attributes.operation(exported(CALL | {"transport": transport}))
    assert (found["network.transport"], found["network.protocol.name"]) == said


@pytest.mark.parametrize(("revision", "there"), [("2025-11-25", True), (None, True), ("2026-07-28", False)])
def test_a_session_is_of_revisions_that_have_sessions(revision: str | None, there: bool) -> None:
    found = attributes.request(exported(CALL | {"revision": revision}))
    assert (found["mcp.session.id"] is not None) == there


def test_a_completed_call_was_allowed() -> None:
    found = attributes.verdict(exported(COMPLETED))
    assert found["interlock.decision"] == "allow"
    assert found["interlock.audit_id"] == CALL["call_id"]


def test_without_the_choice_there_are_no_arguments() -> None:
    assert attributes.arguments(exported(DENIED)) == {}
