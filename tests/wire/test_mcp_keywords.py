"""Words that only MCP messages have: found in one pass, whatever stands around them."""

from __future__ import annotations

import time

import pytest

from proxy.wire.mcp_keywords import has_mcp_words

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
