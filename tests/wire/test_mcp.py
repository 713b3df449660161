"""What MCP messages mean, and headers that must agree with them."""

from __future__ import annotations

import base64
import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.model import Message, ToolCall
from proxy.errors import WireError
from proxy.wire import a2a
from proxy.wire.jsonrpc import parse_message
from proxy.wire.mcp import (
    METHOD_PREFIXES,
    METHODS,
    SURELY_MCP,
    UNSEEN_CATEGORIES,
    RequestHead,
    check_headers,
    check_message,
    decode_header,
    encode_header,
    is_mcp_method,
    parse_mcp_request,
    parse_tool_call,
    plain,
    read_head,
    refuse_misspelt_method,
)


def message(method: str = "tools/call", params: Any = None, **more: Any) -> Message:
    params = {"name": "read", "arguments": {"path": "/x", "n": 3, "deep": {"flag": True}}} if params is None else params
    return parse_message({"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **more})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"method": "tools/call", "params": {"name": "t", "arguments": {"a": 1}}}, ToolCall("t", {"a": 1})),
        ({"method": "tools/call", "params": {"name": "t"}}, ToolCall("t", None)),
        ({"method": "tools/call", "params": {"name": "t", "arguments": None}}, ToolCall("t", None)),
        ({"method": "tools/call", "params": {"name": "t", "arguments": []}}, None),
        ({"method": "tools/call", "params": {"name": 5}}, None),
        ({"method": "tools/call", "params": {}}, None),
        ({"method": "tools/call"}, None),
        ({"method": "tools/list", "params": {"name": "t"}}, None),
        ({"method": "tools/call", "params": {"name": "t"}, "jsonrpc": "1.0"}, None),
        ({"result": {}}, None),
    ],
)
def test_a_body_is_a_tool_call_or_it_is_not(value: Any, expected: ToolCall | None) -> None:
    assert parse_mcp_request(json.dumps({"jsonrpc": "2.0", "id": 1, **value}).encode()) == expected


@pytest.mark.parametrize("body", [b"", b"no", b"[]", b'{"jsonrpc":"2.0"', b"\xff", b"5"])
def test_what_is_not_a_message_is_no_tool_call(body: bytes) -> None:
    assert parse_mcp_request(body) is None


@pytest.mark.parametrize("params", [{}, {"name": None}, {"name": ["t"]}, {"name": "t", "arguments": "x"}])
def test_a_tool_call_of_another_form_is_refused(params: Any) -> None:
    with pytest.raises(WireError, match="bad_tool_call"):
        parse_tool_call(message(params=params))


ODD_NAMES = [
    "t\0", "t\x7f", "t\x85", "\nt", "t\n", "a\tb", " t", "t ", "t\u00a0", "t\u2800", "\u2800t", "t\u3164", "\u115ft",
    "t\uffa0", "t\u200b", "a\u200db", "a\u00adb", "\ufefft", "a\u202eb", "a\u2028b", "\U000e0041t", "t" * 257,
]  # fmt: skip


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_a_tool_name_that_some_server_trims_or_cuts_is_refused(name: str) -> None:
    with pytest.raises(WireError, match="bad_tool_call"):
        check_message(message(params={"name": name}))


@pytest.mark.parametrize(
    "name", ["t", "a b", "r\u00e9sum\u00e9", "\u5de5\u5177", "a.b/c:d-e_f", "t" * 256, ""], ids=ascii
)
def test_an_ordinary_tool_name_is_taken(name: str) -> None:
    assert parse_tool_call(message(params={"name": name})) == ToolCall(name, None)


@pytest.mark.parametrize("key", ["Name", "NAME", "Arguments", "_META", "TaskId", "argument\u017f"])
def test_parameters_that_some_server_reads_as_others_are_refused(key: str) -> None:
    with pytest.raises(WireError, match="misspelt_key"):
        check_message(message(params={"name": "t", key: "u"}))


def test_a_response_may_have_any_keys() -> None:
    response = parse_message({"jsonrpc": "2.0", "id": 1, "result": {"Name": 1}})
    assert check_message(response) is None


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("tools/call", True),
        ("ping", True),
        ("initialize", True),
        ("server/discover", True),
        ("tasks/result", True),
        ("eth_call", False),
        ("Tools/call", False),
        ("pinging", False),
        ("textDocument/hover", False),
    ],
)
def test_mcp_methods_are_known_by_name(method: str, expected: bool) -> None:
    assert is_mcp_method(method) is expected


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Mcp-Method", "tools/call"), ("Mcp-Name", "read")],
        [("MCP-PROTOCOL-VERSION", "2026-07-28"), ("mcp-session-id", "s")],
        [("Mcp-Name", "=?base64?cmVhZA==?=")],
        [("Mcp-Param-Path", "/x"), ("Mcp-Param-N", "3"), ("Mcp-Param-Flag", "true")],
        [("Content-Type", "a"), ("Content-Type", "b"), ("X-Mcp-Name", "other")],
    ],
)
def test_headers_that_agree_pass(headers: list[tuple[str, str]]) -> None:
    check_headers(message(), headers)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([("Mcp-Method", "tools/list")], "header_mismatch"),
        ([("Mcp-Method", "Tools/Call")], "header_mismatch"),
        ([("Mcp-Name", "write")], "header_mismatch"),
        ([("Mcp-Name", "")], "header_mismatch"),
        ([("Mcp-Name", "=?base64?d3JpdGU=?=")], "header_mismatch"),
        ([("Mcp-Name", "=?base64?***?=")], "header_mismatch"),
        ([("Mcp-Name", "=?base64?é?=")], "header_mismatch"),
        ([("Mcp-Name", "=?base64?/w==?=")], "header_mismatch"),
        ([("Mcp-Name", "\udcff")], "header_mismatch"),
        ([("Mcp-Param-Path", "/y")], "header_mismatch"),
        ([("Mcp-Param-N", "3_")], "header_mismatch"),
        ([("Mcp-Param-N", "nan")], "header_mismatch"),
        ([("Mcp-Param-Flag", "1")], "header_mismatch"),
        ([("Mcp-Param-Flag", "True")], "header_mismatch"),
        ([("Mcp-Name", "read"), ("mcp-name", "read")], "duplicate_header"),
        ([("Mcp-Session-Id", "a"), ("MCP-Session-Id", "a")], "duplicate_header"),
        ([("MCP-Protocol-Version", "a"), ("mcp-protocol-version", "b")], "duplicate_header"),
    ],
)
def test_headers_that_disagree_or_repeat_are_refused(headers: list[tuple[str, str]], reason: str) -> None:
    with pytest.raises(WireError) as caught:
        check_headers(message(), headers)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.00001, "0.00001"), (0.00001, "1e-05"), (1.0, "1"), (1e22, "1e+22"), (1e21, "1e21"), (-5, "-5")],
)
def test_a_number_may_be_spelt_in_a_header_as_the_clients_language_does(value: float, said: str) -> None:
    check_headers(message(params={"name": "t", "arguments": {"x": value}}), [("Mcp-Param-X", said)])


def test_a_resource_is_named_by_its_uri() -> None:
    reading = message("resources/read", {"uri": "file:///x", "name": "y"})
    check_headers(reading, [("Mcp-Name", "file:///x")])
    with pytest.raises(WireError, match="header_mismatch"):
        check_headers(reading, [("Mcp-Name", "y")])


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel", "tasks/result"])
def test_a_task_is_named_by_its_id(method: str) -> None:
    reading = message(method, {"taskId": "täsk 1", "name": "y"})
    check_headers(reading, [("Mcp-Name", encode_header("täsk 1"))])
    check_headers(message(method, {"taskId": "t1"}), [("Mcp-Name", "t1")])
    for wrong in ("y", "", "t2", encode_header("täsk 2")):
        with pytest.raises(WireError, match="header_mismatch"):
            check_headers(reading, [("Mcp-Name", wrong)])


def test_a_response_agrees_with_no_method() -> None:
    with pytest.raises(WireError, match="header_mismatch"):
        check_headers(parse_message({"jsonrpc": "2.0", "id": 1, "result": {}}), [("Mcp-Method", "tools/call")])


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_name_survives_as_a_header_value(value: str) -> None:
    encoded = encode_header(value)
    assert encoded.isascii()
    assert encoded.isprintable()
    assert encoded == encoded.strip()
    assert decode_header(encoded) == value


def test_a_value_that_looks_encoded_is_encoded() -> None:
    tricky = "=?base64?" + base64.b64encode(b"x").decode() + "?="
    assert decode_header(encode_header(tricky)) == tricky


def test_methods_as_mcp_spells_them_are_what_the_long_look_takes_for_mcps() -> None:
    for method in METHODS.written:
        assert METHODS[plain(method)] == method
        assert is_mcp_method(method)
        refuse_misspelt_method(method)
    assert all(plain(method).startswith(METHOD_PREFIXES) for method in SURELY_MCP - a2a.SLASHED)


@pytest.mark.parametrize("form", ["{}", "{}a", "a{}", "a{}b", "é{}b"])
def test_every_ascii_character_in_a_tool_name_is_judged_by_its_category_and_place(form: str) -> None:
    for code in range(128):
        name = form.format(chr(code))
        hidden = unicodedata.category(chr(code)) in UNSEEN_CATEGORIES
        if hidden or name[0].isspace() or name[-1].isspace():
            with pytest.raises(WireError, match="bad_tool_call"):
                check_message(message(params={"name": name}))
        else:
            assert check_message(message(params={"name": name})) == ToolCall(name, None)


def test_headers_are_sorted_by_what_they_are_for() -> None:
    headers = [("Content-TYPE", "a"), ("x", "b"), ("MCP-Name", "c"), ("content-encoding", "d"), ("Content-Type", "e")]
    assert read_head(headers) == RequestHead(["a", "e"], ["d"], [("MCP-Name", "c")])
