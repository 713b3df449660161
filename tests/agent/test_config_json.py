"""JSON with comments: values and positions."""

from __future__ import annotations

import pytest

from proxy.agent.config_json import encode, parse
from proxy.errors import ConfigError

TEXT = '\ufeff// x\n{ "a": [1, "b" /* , */,], /* "c": 2 */ "d" : {"e": "//",}, }'


def test_every_value_has_its_place_in_the_text() -> None:
    tree = parse(TEXT)
    members = {member.key: member for member in tree.root.members or ()}
    assert list(members) == ["a", "d"]
    listing = members["a"].node
    assert [TEXT[item.start : item.end] for item in listing.items or ()] == ["1", '"b"']
    assert TEXT[listing.start : listing.end] == '[1, "b" /* , */,]'
    assert TEXT[members["d"].key_start :].startswith('"d" :')
    assert len(tree.plain) == len(TEXT)


@pytest.mark.parametrize("text", ["", "{", "[]", "1", '{"a": /* }', "[" * 100_000])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text)


def test_words_are_written_as_they_are_read() -> None:
    assert encode('é "x" \\') == '"é \\"x\\" \\\\"'
