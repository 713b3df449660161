"""Members without brackets: where they begin, and which of them are the message's own."""

from __future__ import annotations

import pytest

from proxy.wire.lenient_blocks import MAX_LINES, begins_as_block, find_in_yaml
from proxy.wire.lenient_shape import TooLongError


@pytest.mark.parametrize("text", ["a: 1", "# x\n\n'a b': 1", '- "a": 1', "? a\n: 1", "--- \na:", "!!map\n&x a: 1"])
def test_a_member_at_the_start_is_seen(text: str) -> None:
    assert begins_as_block(text)


@pytest.mark.parametrize("text", ["import x", "{a: 1}", "http://x", "", "# a: 1"])
def test_other_text_begins_as_something_else(text: str) -> None:
    assert not begins_as_block(text)


def test_only_the_members_at_the_top_count() -> None:
    assert find_in_yaml("method: tools/call\nid: 1\n") is not None
    assert find_in_yaml("x:\n  method: tools/call\n  id: 1\n") is None
    assert find_in_yaml("method: tools/call\n") is None
    assert find_in_yaml("x: |\n  method: tools/call\nid: 1\n") is None


def test_a_line_that_fits_in_no_mapping_ends_it() -> None:
    assert find_in_yaml("a: 1\nprose\nmethod: tools/call\nid: 1\n") is None


def test_too_many_lines_are_not_taken_for_read() -> None:
    with pytest.raises(TooLongError):
        find_in_yaml("a: 1\n" * (MAX_LINES + 1))
