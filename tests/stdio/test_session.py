"""One client and one server at the gate, line by line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.core.model import Context, Decision, Principal, Redaction
from proxy.errors import StoreUnavailableError
from proxy.stdio.session import Session
from proxy.wire.stdio_lines import TooLong
from tests.support.flow_fixture import WIKI, open_world
from tests.support.gate_fixture import ALLOW, BOOM, DENY, MASK, World, call

CONTEXT = Context(Principal("bot"), "files", transport="stdio", session="s1")
NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "secret"}}


class Wire:
    """A session whose two ends are lists."""

    def __init__(self, **world: Any) -> None:
        self.world = World(**world)
        self.client: list[Any] = []
        self.server: list[Any] = []
        self.broken = False
        self.session = Session(self.world.gate, CONTEXT, self._to_client, self._to_server)

    async def _to_client(self, data: bytes) -> None:
        assert data.endswith(b"\n")
        self.client += [json.loads(line) for line in data.splitlines()]

    async def _to_server(self, data: bytes) -> None:
        if self.broken:
            raise BrokenPipeError
        assert data.count(b"\n") == 1
        self.server.append(json.loads(data))

    async def ask(self, value: Any) -> None:
        await self.session.from_client(value if isinstance(value, bytes) else json.dumps(value).encode())

    async def answer(self, value: Any) -> None:
        await self.session.from_server(value if isinstance(value, bytes) else json.dumps(value).encode())


async def test_a_call_goes_out_and_its_answer_comes_back() -> None:
    wire = Wire()
    await wire.ask(call(request_id=1))
    await wire.answer({"jsonrpc": "2.0", "id": 1, "result": {"x": 1.0}})
    assert wire.server == [call(request_id=1)]
    assert wire.client == [{"jsonrpc": "2.0", "id": 1, "result": {"x": 1.0}}]
    assert [(event.kind, event.outcome) for event in wire.world.events] == [("decided", None), ("completed", "done")]
    assert {event.transport for event in wire.world.events} == {"stdio"}


async def test_a_call_is_told_of_before_it_goes_out_and_a_refused_one_is_not() -> None:
    wire = Wire()
    told: list[tuple[str | None, int]] = []
    session = Session(
        wire.world.gate,
        CONTEXT,
        wire._to_client,
        wire._to_server,
        lambda message, in_flight: told.append((message.method, len(wire.server))),
    )
    await session.from_client(json.dumps(call(request_id=1)).encode())
    await session.from_client(b"[]")
    assert told == [("tools/call", 0)]
    assert len(wire.server) == 1


async def test_a_refused_call_is_answered_here() -> None:
    wire = Wire(decision=DENY)
    await wire.ask(call(request_id="a"))
    assert wire.server == []
    assert wire.client[0]["id"] == "a"
    assert wire.client[0]["result"]["isError"] is True


@pytest.mark.parametrize("step", ["decide", "mask", "record"])
async def test_whatever_fails_nothing_reaches_the_server(step: str) -> None:
    wire = Wire(decision=replace(ALLOW, redactions=(MASK,)), fail={step: BOOM})
    await wire.ask(call())
    assert wire.server == []
    assert wire.client[0]["id"] == 7


async def test_an_unknown_verdict_reaches_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Wire()

    async def inspect(*_: object) -> str:
        return "Forward"

    monkeypatch.setattr(wire.world.gate.requests, "inspect", inspect)
    with pytest.raises(TypeError, match="unknown verdict"):
        await wire.ask(call())
    assert (wire.server, wire.client) == ([], [])


async def test_a_refused_notification_gets_no_answer() -> None:
    wire = Wire(decision=DENY)
    await wire.ask({"jsonrpc": "2.0", "method": "notifications/x"})
    assert (wire.server, wire.client) == ([], [])


async def test_each_request_of_a_batch_is_refused_on_a_line_of_its_own() -> None:
    wire = Wire()
    await wire.ask([call(request_id=1), call(request_id=2), {"jsonrpc": "2.0", "method": "notifications/x"}])
    assert wire.server == []
    assert [reply["id"] for reply in wire.client] == [1, 2]


@pytest.mark.parametrize("line", [b"hello", b"42", b'"text"', b"[]", b"{}", b'{"method":"x"}', b"\xff\xfe"])
async def test_what_is_not_mcp_reaches_nobody_and_is_recorded(line: bytes) -> None:
    wire = Wire()
    await wire.ask(line)
    assert (wire.server, wire.client) == ([], [])
    assert [(event.kind, event.reason, event.decision) for event in wire.world.events] == [
        ("line_refused", "not_mcp", "deny")
    ]


async def test_a_request_of_another_protocol_is_told() -> None:
    wire = Wire()
    await wire.ask({"jsonrpc": "2.0", "id": 5, "method": "weather", "params": {"name": "x"}})
    assert wire.server == []
    (reply,) = wire.client
    assert (reply["id"], reply["error"]["code"], reply["error"]["data"]["reason"]) == (5, 40301, "not_mcp")
    assert reply["error"]["data"]["audit_id"] == wire.world.events[0].event_id


async def test_a_clients_line_past_the_limit_is_recorded_and_answered_where_its_id_is_known() -> None:
    wire = Wire()
    await wire.session.from_client(TooLong(b"x", b"x"))
    await wire.session.from_client(TooLong(b'{"method":"tools/call"', b',"jsonrpc":"2.0","id":4}'))
    assert wire.server == []
    (reply,) = wire.client
    assert (reply["id"], reply["error"]["data"]["reason"]) == (4, "body_too_large")
    assert [event.reason for event in wire.world.events] == ["body_too_large"] * 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (TooLong(b'{"jsonrpc":"2.0","id":1,"result":', b"x"), "event_too_large"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"half":', "unreadable_response"),
        (b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "unreadable_response"),
        (b'{"result":' + b"9" * 5000 + b',"jsonrpc":"2.0","id":1}', "unreadable_response"),
    ],
)
async def test_a_call_whose_answer_cannot_be_given_on_is_told_so(line: bytes | TooLong, reason: str) -> None:
    wire = Wire()
    await wire.ask(call(request_id=1))
    await wire.session.from_server(line)
    (reply,) = wire.client
    assert reply["id"] == 1
    assert reply["result"]["_meta"]["mcp-interlock/denial"]["reason"] == reason
    assert wire.world.events[-1].outcome == "unreadable"
    await wire.session.from_server(line)
    assert len(wire.client) == 1


async def test_a_call_that_the_server_does_not_take_is_recorded_so() -> None:
    wire = Wire()
    wire.broken = True
    with pytest.raises(BrokenPipeError):
        await wire.ask(call())
    assert wire.world.events[-1].outcome == "upstream_error"


async def test_a_result_is_masked_and_so_is_all_that_comes_beside() -> None:
    wire = Wire(decision=replace(ALLOW, redactions=(MASK,)))
    await wire.answer(NOTE)
    assert wire.client.pop()["params"] == {"data": "***"}, "what comes before any call may be of any rule's concern"
    await wire.ask(call(request_id=1))
    await wire.answer(NOTE)
    assert wire.client.pop()["params"] == {"data": "***"}
    await wire.answer({"jsonrpc": "2.0", "id": 1, "result": {"text": "secret"}})
    assert wire.client.pop()["result"] == {"text": "***"}
    for late in (
        NOTE,
        {"jsonrpc": "2.0", "id": 1.0, "result": {"data": "secret"}},
        {"id": "s", "method": "x", "params": ["secret"]},
    ):
        await wire.answer(late)
        assert "secret" not in json.dumps(wire.client.pop())


async def test_rules_add_up_for_what_comes_beside() -> None:
    wire = Wire(decision=replace(ALLOW, redactions=(MASK,)))
    await wire.ask(call(request_id=1))
    wire.world.decision = replace(ALLOW, redactions=(Redaction("other", ("pii",), frozenset({"arguments"})),))
    await wire.ask(call(request_id=2))
    await wire.answer(NOTE)
    assert wire.client.pop()["params"] == {"data": "***"}


async def test_what_cannot_be_masked_is_left_out() -> None:
    wire = Wire(decision=replace(ALLOW, redactions=(MASK,)))
    await wire.ask(call(request_id=1))
    wire.world.fail["mask"] = BOOM
    await wire.answer(NOTE)
    assert wire.client == []
    await wire.answer({"jsonrpc": "2.0", "id": 1, "result": {"text": "secret"}})
    assert "secret" not in json.dumps(wire.client)
    assert wire.client[0]["id"] == 1


@pytest.mark.parametrize("line", [b"chatter", b"42", b'"x"', b'{"half":', b"[" * 200_000, b"\xff", b"[1,2]"])
async def test_what_a_server_writes_that_is_no_message_is_left_out(line: bytes) -> None:
    wire = Wire()
    await wire.answer(line)
    assert wire.client in ([], [[]])


@pytest.mark.parametrize("odd", [b"\r", b"\x00", b"\x0c"])
async def test_what_a_client_might_take_for_two_lines_is_spelt_anew(odd: bytes) -> None:
    wire = Wire()
    got: list[bytes] = []

    async def take(data: bytes) -> None:
        got.append(data)

    session = Session(wire.world.gate, CONTEXT, take, take)
    await session.from_server(b'{"jsonrpc":"2.0",%s"method":"x"}' % odd)
    await session.from_server(b'{"jsonrpc": "2.0", "method": "x"}\r')
    assert got[-1] == b'{"jsonrpc": "2.0", "method": "x"}\n'
    assert all(odd not in data for data in got)


async def test_the_revision_is_learnt_from_the_handshake_or_from_each_message() -> None:
    wire = Wire()
    await wire.ask({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}})
    assert wire.session.context.revision is None
    await wire.answer({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-06-18"}})
    assert wire.session.context.revision == "2025-06-18"
    await wire.ask(call(request_id=2, _meta={"io.modelcontextprotocol/protocolVersion": "2026-07-28"}))
    await wire.answer({"jsonrpc": "2.0", "id": 2, "result": {}})
    assert wire.world.events[-1].revision == "2026-07-28"


async def test_a_client_is_told_of_tools_only_once_it_listens() -> None:
    wire = Wire()
    await wire.session.tools_changed()
    assert wire.client == []
    await wire.ask({"jsonrpc": "2.0", "method": "notifications/initialized"})
    await wire.session.tools_changed()
    assert [message["method"] for message in wire.client] == ["notifications/tools/list_changed"]


async def test_a_subscription_is_told_once_the_server_took_it_up_and_until_it_ends() -> None:
    wire = Wire()
    params = {"notifications": {"toolsListChanged": True}}
    await wire.ask({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params})
    await wire.session.tools_changed()
    assert wire.client == []
    meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": 1}}
    await wire.answer({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": meta})
    wire.client.clear()
    await wire.session.tools_changed()
    assert [message["params"] for message in wire.client] == [meta]
    await wire.answer({"jsonrpc": "2.0", "id": 1, "result": {}})
    wire.client.clear()
    await wire.session.tools_changed()
    assert wire.client == []


async def test_an_id_under_way_is_not_used_twice() -> None:
    wire = Wire()
    await wire.ask(call(request_id=1))
    await wire.ask(call(request_id=1, tool="other"))
    assert len(wire.server) == 1
    assert "id_in_use" in json.dumps(wire.client)


async def test_a_decision_that_is_none_of_the_known_denies() -> None:
    wire = Wire(decision=Decision("maybe", "x"))  # type: ignore[arg-type]
    await wire.ask(call())
    assert wire.server == []


PAGE = "The launch of the new turbine is planned for the third week of October, code 884213."


async def test_what_a_local_server_brought_does_not_leave(tmp_path: Path) -> None:
    """Its answers and what it says beside them are labelled, and stored before the client has them."""
    world = open_world(tmp_path, WIKI)
    given: list[Any] = []
    taken: list[Any] = []
    context = replace(CONTEXT, server="wiki")

    async def to_client(data: bytes) -> None:
        given.extend(json.loads(line) for line in data.splitlines())

    async def to_server(data: bytes) -> None:
        taken.append(json.loads(data))

    session = Session(world.gate, context, to_client, to_server)

    async def ask(number: int, tool: str, body: str) -> None:
        params = {"name": tool, "arguments": {"body": body}}
        await session.from_client(
            json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()
        )

    await ask(1, "read_page", "")
    note = {
        "jsonrpc": "2.0",
        "method": "notifications/message",
        "params": {"data": "beside: account GB29NWBK60161331926819"},
    }
    await session.from_server(json.dumps(note).encode())
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": PAGE}]}}
    await session.from_server(json.dumps(answer).encode())
    assert given == [note, answer]
    await ask(2, "post", PAGE[10:60])
    await ask(3, "post", "to GB29 NWBK 6016 1331 9268 19")
    await ask(4, "post", "harmless words")
    reasons = [each["result"]["_meta"]["mcp-interlock/denial"]["reason"] for each in given[2:]]
    assert (reasons, [each["id"] for each in taken]) == (["flow_denied"] * 2, [1, 4])


async def test_a_local_server_whose_labels_cannot_be_stored_is_not_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = open_world(tmp_path, WIKI)
    given = bytearray()

    async def to_client(data: bytes) -> None:
        given.extend(data)

    async def to_server(_: bytes) -> None:
        pass

    async def fail(*_: object) -> None:
        raise StoreUnavailableError("gone")

    session = Session(world.gate, replace(CONTEXT, server="wiki"), to_client, to_server)
    await session.from_client(json.dumps(call(request_id=1)).encode())
    monkeypatch.setattr(world.marks, "add", fail)
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": PAGE}]}}
    await session.from_server(json.dumps(answer).encode())
    assert b"turbine" not in given
    assert b"store_unavailable" in given
