"""How a body begins, and how cheaply that is told."""

from __future__ import annotations

import time

import pytest

from proxy.wire.json_sniff import could_be_json, could_be_lenient, has_mcp_words, is_string, is_undecided

BEGUN = [
    "{",
    "[",
    '"',
    "// x",
    " \ufeff{",
    "1 {",
    "-1{",
    "1.5e3\n[",
    "true\n{",
    "null{",
    "false NaN {",
    "-Infinity [",
    "1 // x",
]
OTHER = [
    "",
    " ",
    "5",
    "true",
    "hello {",
    "truest {",
    "-- x {",
    "1,2,{",
    "1/2/2024 {",
    "0032want {",
    "a=1&b={",
    "5;x={",
    "--x\r\n{",
]


@pytest.mark.parametrize("codec", ["utf-8", "utf-16", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", BEGUN)
def test_a_value_is_seen_behind_scalars_in_any_unicode(text: str, codec: str) -> None:
    assert could_be_json(text.encode(codec))


@pytest.mark.parametrize("text", OTHER)
def test_other_text_is_not_taken_for_json(text: str) -> None:
    assert not could_be_json(text.encode())


@pytest.mark.parametrize("text", ["#x\n{", ")]}'\n{", "'{", "---\n", "method: x", "- a: 1", "? a", " key : 1", "// x"])
def test_what_a_more_lenient_parser_may_begin_with_is_seen(text: str) -> None:
    assert could_be_lenient(text.encode())
    assert not could_be_lenient(b"import x\n")
    assert not could_be_lenient(b"\x89PNG\r\n")


@pytest.mark.parametrize("text", BEGUN)
def test_every_beginning_of_a_beginning_is_undecided(text: str) -> None:
    data = text.encode()
    for end in range(len(data)):
        assert could_be_json(data[:end]) or is_undecided(data[:end]) or data[:end].endswith(b"/")


@pytest.mark.parametrize("head", ["1,", "hello ", "--x\r\n", "a=1&", "{"])
def test_what_is_decided_is_not_undecided(head: str) -> None:
    assert not is_undecided(head.encode())


def test_a_string_is_told_from_other_values() -> None:
    assert is_string(b' \n"a"')
    assert not is_string(b'{"a"')


@pytest.mark.parametrize("unit", [b"1 ", b"\0", b"true", b"-1-1", b"t\0r\0u\0e\0"])
def test_a_long_beginning_costs_one_pass(unit: bytes) -> None:
    start = time.process_time()
    assert not could_be_json(unit * (1 << 20))
    assert time.process_time() - start < 1


SIZE = 1 << 22


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"jsonrpc"', True),
        ("'tools/call'", True),
        ('"tools\\/call"', True),
        ('"\\u0074ools/call"', True),
        ('" JSONRPC "', True),
        ('"json\u017f"', False),
        ('"tool\u017f/call"', True),
        ('"tools/call\\u0000"', True),
        ('"\u200btools/call"', True),
        ('"   "jsonrpc"', True),
        ('"tools/"', False),
        ("tools/call", False),
        ('\\"tools/call\\"', False),
        ('"\\x74ools/c\\all"', True),
        ("{method: tools/call}", True),
        ("{jsonrpc: 2.0}", True),
        ("the method: tools/call", False),
    ],
)
def test_mcp_words_are_found_in_quotes(text: str, expected: bool) -> None:
    assert has_mcp_words(text) is expected


@pytest.mark.parametrize(
    "text",
    [
        '"' + " " * SIZE,
        '"   ' * (SIZE // 4),
        '"tools/' + "a" * SIZE,
        '"jsonrpc' + " " * SIZE,
        '"tools/a .' * (SIZE // 10),
    ],
    ids=["blanks", "quotes", "a long word", "blanks after", "words"],
)
def test_looking_for_words_does_not_go_back(text: str) -> None:
    start = time.process_time()
    assert not has_mcp_words(text)
    assert time.process_time() - start < 1
