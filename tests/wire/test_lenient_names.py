"""Names and words, as the laxest comparison sees them."""

from __future__ import annotations

import pytest

from proxy.wire.lenient_names import (
    MAX_WORD,
    has_call_words,
    has_message_words,
    is_call_method,
    is_plain_method,
    key_names,
    views,
)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("c\\all", "call"),
        ("\\u0063all", "call"),
        ("\\x63all", "call"),
        ("\\u{63}all", "call"),
        ("\\U00000063all", "call"),
        ("\\143all", "call"),
        ("ca\\\nll", "call"),
        ("ca\\\r\nll", "call"),
        ("\\/", "/"),
        ("\\U7fffffff", "U7fffffff"),
        ("\\u{7fffffff}", "\U0010ffff"),
    ],
)
def test_escapes_are_undone_as_some_parser_does(written: str, meant: str) -> None:
    assert meant in list(views(written))


@pytest.mark.parametrize(
    "key", ["method", "METHOD", "me-thod", "me_th_od", "method\0x", "\0method", "me\0thod", " method"]
)
def test_a_key_has_every_name_that_a_parser_gives_it(key: str) -> None:
    assert "method" in key_names(key)


def test_escapes_in_a_key_are_undone_only_where_they_were_not_before() -> None:
    assert "method" in key_names("meth\\od", raw=True)
    assert "method" not in key_names("meth\\od")
    assert key_names("x" * (MAX_WORD + 1)) == set()


def test_methods_of_mcp_are_told_from_those_of_others() -> None:
    assert is_call_method("Tools/Call")
    assert is_call_method("tools/c\\all", raw=True)
    assert not is_call_method("eth_call")
    assert is_plain_method("ping")
    assert not is_plain_method("tools/call")


@pytest.mark.parametrize(
    "text", ["tools/call", "j\\sonrpc", "JSON-RPC", "\\x74ools/call", "t o o l s / c", "\uff4asonrpc"]
)
def test_words_are_found_in_any_spelling(text: str) -> None:
    assert has_call_words(f"x {text} y")


def test_words_of_every_message_are_told_from_parts_of_paths() -> None:
    assert has_call_words("a/resources/x")
    assert not has_message_words("a/resources/x")
    assert has_message_words("resources/read")
    assert not has_call_words("nothing of it")
