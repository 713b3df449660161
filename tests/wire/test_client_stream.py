"""A call that is cut over several messages of a WebSocket is found where it becomes one."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.body import NotMcp, RefusedBody, read_body, read_lines
from proxy.wire.client_stream import WHOLE, ClientStream

CALL = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "danger"}}).encode()


def send(stream: ClientStream, message: bytes) -> bool:
    """Send a message; return whether it passed as what is not MCP."""
    reading = read_body(message)
    reading = stream.judge(read_lines(message) if isinstance(reading, NotMcp) else reading, message)
    if isinstance(reading, NotMcp):
        stream.passed(message)
    return isinstance(reading, NotMcp)


@given(st.lists(st.integers(0, len(CALL)), min_size=1, max_size=6))
def test_no_way_of_cutting_a_call_passes_all_of_it(cuts: list[int]):
    stream = ClientStream()
    edges = [0, *sorted(cuts), len(CALL)]
    passed = b"".join(p for a, b in itertools.pairwise(edges) if send(stream, p := CALL[a:b]))
    assert isinstance(read_lines(passed), NotMcp)


@pytest.mark.parametrize(
    "parts",
    [
        [CALL[i : i + 1] for i in range(len(CALL))],
        [b'{"id":1', b"," + CALL[1:]],
        [b"{", b" " * 70_000, CALL[1:]],
        [b'{"a":"' + b"x" * (WHOLE + 9), b'",' + CALL[1:]],
        [
            b'{"x":"' + b"x" * WHOLE + b'","y":[' + b"1," * 999 + b'1],"jsonrpc":"2.0","id":1,"meth',
            b'od":"tools/call"}',
        ],
        [b"chat\n{", CALL[1:]],
        [b"chat\x0b" + CALL[:9], CALL[9:]],
        ["chat\u2028".encode() + CALL[:9], CALL[9:]],
        [b"chat\x1e" + CALL[:9], CALL[9:] + b"\x1e"],
        [b"  ", b"[", CALL + b"]"],
        [b'{"json', b'rpc":"2.0","method":"tools/', b'call","params":{"name":"danger"}}'],
        [b'{"\\u006as', b'onrpc":"2.0","method":"tools\\u002', b'fcall","params":{"name":"danger"}}'],
    ],
    ids=[
        "bytes",
        "between members",
        "blanks",
        "past what is kept",
        "past what is kept, with quotes",
        "after a line",
        "after a vertical tab",
        "after U+2028",
        "after a record",
        "array",
        "in words",
        "in escapes",
    ],
)
def test_a_call_in_parts_does_not_pass_whole(parts: list[bytes]):
    stream = ClientStream()
    assert not all(send(stream, part) for part in parts)


@pytest.mark.parametrize(
    "messages",
    [
        [b"hello", b'she said "jsonrpc"', b"bye {"],
        [b'{"type":"chat","text":"{\\"jsonrpc\\":1}"}'] * 5,
        [bytes(range(256)) * 40] * 20,
        [b"4", b'42["message",{"a":1}]', b"2probe", b"3"],
        [b'{"op":1,"d":null}', b'{"op":2,"d":{"token":"x"}}'],
        [b'{"a":"' + b"x" * WHOLE + b'"}', b'{"b":1}'],
        [b'{"partial":', b'"value"}', b"[1,2", b",3]"],
        [b"\x00\x01{", b"}\x02"],
    ],
    ids=["chat", "quoting chat", "binary", "socket.io", "gateway", "long", "parts of JSON", "odd"],
)
def test_ordinary_streams_pass(messages: list[bytes]):
    stream = ClientStream()
    assert all(send(stream, message) for message in messages)


def test_where_mcp_was_spoken_only_whole_messages_pass():
    stream = ClientStream(speaks_mcp=True)
    reading = stream.judge(NotMcp(), b"hello")
    assert isinstance(reading, RefusedBody)
    assert reading.reason == "not_mcp"
    assert not isinstance(stream.judge(read_body(CALL), CALL), RefusedBody)


def test_a_whole_message_does_not_pass_inside_an_unfinished_one():
    stream = ClientStream()
    assert send(stream, b'{"a":')
    reading = stream.judge(read_body(CALL), CALL)
    assert isinstance(reading, RefusedBody)
    assert (reading.reason, reading.id, reading.method) == ("not_json", 1, "tools/call")


@pytest.mark.parametrize("first", [b"hello", b"1", b"true", b'{"a":1}', b"", b"tru"])
def test_a_whole_message_passes_after_what_begins_none(first: bytes):
    stream = ClientStream()
    assert send(stream, first)
    assert not isinstance(stream.judge(read_body(CALL), CALL), RefusedBody)


@pytest.mark.parametrize("cut", [1, 3, 9, 60])
def test_nothing_more_passes_after_a_piece_of_a_call_was_held_back(cut: int):
    stream, call = ClientStream(), b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger"}}'
    sent = [send(stream, call[at : at + cut]) for at in range(0, len(call), cut)]
    held = sent.index(False)
    # Of one whole piece that is refused by itself, nothing has reached the server that could go on.
    assert not any(sent[held:]) or held == 0
