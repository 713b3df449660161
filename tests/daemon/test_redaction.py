"""Secrets are masked on the wire: in arguments, the headers that mirror them, results, streams and records."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.daemon.test_responses import LAST, chunk, chunked_head, request, response, scripted
from tests.support.harness import Interlock, start_interlock
from tests.support.raw_socket import parse_answers, send_raw
from tests.support.timeouts import PATIENCE

SECRET = "ghp_" + "Zx8Kq2" * 6
CARD = 4111111111111111
POLICY = """\
version: 1
default: allow
rules:
  - {id: scrub, action: redact, tools: ["*"], on: [arguments, result], detectors: [secrets, pii.card]}
  - {id: never, action: redact, redact: deny, tools: [strict], on: [arguments, result], detectors: [secrets]}
"""


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    with start_interlock(tmp_path_factory.mktemp("proxy"), policy=POLICY) as running:
        yield running


def call(tool: str, **arguments: object) -> bytes:
    params = {"name": tool, "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def result(value: dict) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": value}).encode()


PLAIN = response(result({"content": []}), "application/json")


def test_a_secret_in_the_arguments_reaches_neither_the_server_nor_the_record(interlock: Interlock):
    with scripted(PLAIN) as (port, requests):
        body = call("note", text=f"my token is {SECRET}, keep it", n=1)
        send_raw("127.0.0.1", interlock.port, [request(port, body)])
    assert SECRET.encode() not in requests[0]
    assert b"my token is [secret:" in requests[0]
    event = [e for e in interlock.events() if e["kind"] == "decided"][-1]
    assert event["redactions"][0]["path"].endswith("text")
    assert SECRET not in json.dumps(interlock.events())
    assert SECRET not in interlock.errors()


def test_headers_that_mirror_a_masked_argument_follow_it(interlock: Interlock):
    with scripted(PLAIN) as (port, requests):
        headers = (f"Mcp-Param-Token: {SECRET}", "Mcp-Param-Region: eu", "Mcp-Name: note", "Mcp-Method: tools/call")
        body = call("note", token=SECRET, region="eu")
        send_raw("127.0.0.1", interlock.port, [request(port, body, "POST", *headers)])
    head, _, body = requests[0].partition(b"\r\n\r\n")
    sent = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    assert SECRET.encode() not in requests[0]
    assert sent["Mcp-Param-Token"] == json.loads(body)["params"]["arguments"]["token"]
    assert (sent["Mcp-Param-Region"], sent["Mcp-Name"]) == ("eu", "note")


def test_a_secret_that_a_rule_denies_stops_the_call(interlock: Interlock):
    with scripted(PLAIN) as (port, requests):
        received = send_raw("127.0.0.1", interlock.port, [request(port, call("strict", text=SECRET))])
        send_raw("127.0.0.1", interlock.port, [request(port, call("strict", text="fine"))])
    assert b"secret_found" in received
    assert SECRET.encode() not in requests[0]


def test_what_cannot_be_masked_without_changing_its_type_stops_the_call(interlock: Interlock):
    with scripted(PLAIN) as (port, _):
        received = send_raw("127.0.0.1", interlock.port, [request(port, call("pay", card=CARD))])
        send_raw("127.0.0.1", interlock.port, [request(port, call("pay", card=1))])
    assert b"secret_found" in received


@pytest.mark.parametrize(
    "value",
    [
        {"content": [{"type": "text", "text": f"token {SECRET}"}]},
        {"content": [], "structuredContent": {"deep": [{"token": SECRET}]}},
        {"content": [{"type": "resource", "resource": {"uri": "x:y", "text": f"key={SECRET}"}}]},
        {"content": [{"type": "text", "text": f"token {SECRET}"}], "isError": True},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_secret_in_a_result_is_masked_wherever_it_stands(interlock: Interlock, value: dict, stream: bool):
    event = b"data: " + result(value) + b"\n\n"
    steps = [chunked_head(), chunk(event), LAST] if stream else [response(result(value), "application/json")]
    with scripted(*steps) as (port, _):
        received = send_raw("127.0.0.1", interlock.port, [request(port, call("fetch"))])
    assert SECRET.encode() not in received
    assert b"[secret:" in received


def test_a_secret_in_an_error_message_is_masked(interlock: Interlock):
    error = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": f"bad {SECRET}"}}).encode()
    with scripted(response(error, "application/json")) as (port, _):
        received = send_raw("127.0.0.1", interlock.port, [request(port, call("fetch"))])
    assert SECRET.encode() not in received


def test_a_result_that_a_rule_denies_is_withheld(interlock: Interlock):
    with scripted(response(result({"content": [{"type": "text", "text": SECRET}]}), "application/json")) as (port, _):
        received = send_raw("127.0.0.1", interlock.port, [request(port, call("strict"))])
    answer = json.loads(parse_answers(received)[0].body)
    assert answer["result"]["_meta"]["mcp-interlock/denial"]["reason"] == "secret_found"
    assert SECRET not in json.dumps(answer)


def test_an_answer_that_cannot_be_read_is_withheld_where_it_would_have_to_be_masked(interlock: Interlock):
    with scripted(response(b"{broken " + SECRET.encode(), "application/json")) as (port, _):
        received = send_raw("127.0.0.1", interlock.port, [request(port, call("fetch"))])
    assert SECRET.encode() not in received
    assert b"unreadable_response" in received


def test_a_notification_beside_the_answer_is_masked_too(interlock: Interlock):
    progress = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": f"key {SECRET}"}}
    stream = b"data: " + json.dumps(progress).encode() + b"\n\ndata: " + result({"content": []}) + b"\n\n"
    with scripted(chunked_head(), chunk(stream), LAST) as (port, _):
        received = send_raw("127.0.0.1", interlock.port, [request(port, call("fetch"))])
    assert SECRET.encode() not in received
    assert b"notifications/message" in received


@pytest.mark.parametrize(
    "odd",
    [
        {"id": "1"},
        {"id": 1.0},
        {"id": 2},
        {"id": None},
        {"method": "x"},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_result_under_an_odd_id_leaks_nothing(interlock: Interlock, odd: dict, stream: bool):
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": SECRET}]}, **odd}
    body = json.dumps(answer).encode()
    steps = (
        [chunked_head(), chunk(b"data: " + body + b"\n\n"), LAST] if stream else [response(body, "application/json")]
    )
    with scripted(*steps) as (port, _):
        received = send_raw("127.0.0.1", interlock.port, [request(port, call("fetch"))])
    assert SECRET.encode() not in received


@pytest.mark.parametrize("wrap", [b"[[%s]]", b"%s\n{}", b'{"a":%s}'])
def test_a_result_in_an_odd_wrapping_leaks_nothing(interlock: Interlock, wrap: bytes):
    body = wrap % result({"content": [{"type": "text", "text": SECRET}]})
    with scripted(response(body, "application/json")) as (port, _):
        received = send_raw("127.0.0.1", interlock.port, [request(port, call("fetch"))])
    assert SECRET.encode() not in received


def test_a_result_under_an_error_status_is_masked(interlock: Interlock):
    body = result({"content": [{"type": "text", "text": SECRET}]})
    raw = response(body, "application/json").replace(b"200 OK", b"500 Oops")
    with scripted(raw) as (port, _):
        received = send_raw("127.0.0.1", interlock.port, [request(port, call("fetch"))])
    assert parse_answers(received)[0].status == 500
    assert SECRET.encode() not in received


def test_an_event_that_poses_as_an_endpoint_is_masked(interlock: Interlock):
    event = b"event: endpoint\ndata: " + result({"content": [{"type": "text", "text": SECRET}]}) + b"\n\n"
    with scripted(chunked_head(), chunk(event), LAST) as (port, _):
        received = send_raw("127.0.0.1", interlock.port, [request(port, call("fetch"))])
    assert SECRET.encode() not in received


@pytest.mark.parametrize("stream", [False, True])
def test_a_large_result_is_masked_too(interlock: Interlock, stream: bool):
    text = "The quick brown fox jumps over the lazy dog. " * 4000 + SECRET
    body = result({"content": [{"type": "text", "text": text}]})
    whole = [response(body, "application/json")]
    pieces = [chunk(piece) for piece in (b"data: ", body[:90_000], body[90_000:], b"\n\n")]
    with scripted(*([chunked_head(), *pieces, LAST] if stream else whole)) as (port, _):
        received = send_raw("127.0.0.1", interlock.port, [request(port, call("fetch"))])
    assert SECRET.encode() not in received
    assert b"lazy dog. [secret:" in received


def progress(text: str) -> dict:
    params = {"progressToken": 1, "progress": 1, "message": text}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def logged(text: str) -> dict:
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": text}}


@pytest.mark.parametrize(
    "messages",
    [
        [progress(f"key {SECRET[:18]}"), progress(f"{SECRET[18:]} done")],
        [logged(SECRET[:18]), progress(SECRET[18:])],
        [progress(SECRET[:9]), progress(SECRET[9:18]), SECRET[18:]],
        [logged(SECRET[:18]), SECRET[18:]],
    ],
)
def test_a_secret_cut_over_events_of_one_stream_is_masked_from_the_second_on(interlock: Interlock, messages: list):
    texts = [message for message in messages if isinstance(message, str)] or ["done"]
    events = [json.dumps(message).encode() for message in messages if isinstance(message, dict)]
    events.append(result({"content": [{"type": "text", "text": text} for text in texts]}))
    pieces: list = [chunk(b"event: message\ndata: " + event + b"\n\n") for event in events]
    with scripted(chunked_head(), *pieces, LAST) as (port, _):
        received = send_raw("127.0.0.1", interlock.port, [request(port, call("fetch"))])
    assert SECRET[18:].encode() not in received
    assert b"[secret:github-token:" in received
    assert received.count(b"data: {") == len(events)
    event = [event for event in interlock.events() if event["kind"] == "completed"][-1]
    assert event["detail"] == {"secret_begun": True}
    assert {finding["detector"] for finding in event["redactions"]} == {"secrets.github-token"}


def test_an_event_is_not_held_back_for_the_next(interlock: Interlock):
    first = b"data: " + json.dumps(progress(f"key {SECRET[:18]}")).encode() + b"\n\n"
    rest = b"data: " + result({"content": [{"type": "text", "text": "done"}]}) + b"\n\n"
    go = threading.Event()
    with (
        scripted(chunked_head(), chunk(first), go, chunk(rest), LAST) as (port, _),
        socket.create_connection(("127.0.0.1", interlock.port), timeout=PATIENCE) as client,
    ):
        client.sendall(request(port, call("fetch")))
        received = b""
        while SECRET[:18].encode() not in received:
            received += (piece := client.recv(65536))
            assert piece, received
        assert b"done" not in received
        go.set()
