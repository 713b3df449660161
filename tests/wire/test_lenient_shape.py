"""Which values are messages to some server, and which to none."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.wire.lenient_shape import Node, Pairs, Quoted, Word, find_message, is_request, method_of, request_id

CALL: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "danger"}}
MESSAGES: dict[str, Any] = {
    "a call": CALL,
    "in arrays": [1, [CALL]],
    "in a numbered object": {"0": CALL},
    "in what is like an array": {"0": CALL, "length": 1},
    "a struct": ["2.0", 7, "tools/call", {}],
    "a struct without a version": ["tools/call", {"name": "danger"}],
    "a struct of a ping": ["2.0", 7, "ping"],
    "a method in an array": CALL | {"method": ["tools/call"]},
    "a method in an enum": CALL | {"method": {"tools/call": None}},
    "a method that is true": CALL | {"method": True},
    "a method that is true, no version": {"method": True, "params": {"name": "danger"}},
    "a method that is a number": CALL | {"method": 0},
    "a response": {"jsonrpc": "2.0", "id": 1, "result": {}},
    "the second of two": Pairs([("method", "x"), ("method", "tools/call")]),
    "NUL in a key": {"method\0x": "tools/call"},
    "hyphens in a key": {"me-thod": "tools/call"},
    "ping": {"jsonrpc": "2.0", "method": "ping"},
    "another method beside ping": {"jsonrpc": "2.0", "method": "ping", "Method": "tools/call", "params": []},
}


@pytest.mark.parametrize("value", MESSAGES.values(), ids=MESSAGES)
def test_a_message_to_some_server_is_found(value: Any) -> None:
    assert find_message(value) is not None


OTHER: dict[str, Any] = {
    "a call inside": {"body": CALL},
    "a call in a list inside": {"examples": [CALL]},
    "another service's call": {"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": []},
    "a Bitcoin node's ping": {"jsonrpc": "1.0", "id": "x", "method": "ping", "params": []},
    "names of methods": ["tools/list", "tools/call"],
    "names in an object": {"methods": ["tools/call"]},
    "a flag": {"method": True},
    "numbers": {"0": {"a": 1}, "1": {}},
    "a scalar": 5,
    "text": "tools/call",
}


@pytest.mark.parametrize("value", OTHER.values(), ids=OTHER)
def test_what_is_a_message_to_no_server_is_not_found(value: Any) -> None:
    assert find_message(value) is None


def test_members_without_commas_are_told_apart_by_their_keys() -> None:
    node = Node(is_list=False)
    for token in (Word("method"), ":", Word("tools/call"), Quoted("id"), ":", Word("7")):
        node.separate() if token == ":" else node.add(token)
    node.end_member()
    assert node.members == [("method", ["tools/call"]), ("id", ["7"])]
    assert (request_id(node), method_of(node), is_request(node)) == (7, "tools/call", True)


def test_a_log_line_is_no_request() -> None:
    assert not is_request({"method": "tools/call", "ts": 1})
    assert is_request(["tools/call", {}])
