"""TOML: values and positions."""

from __future__ import annotations

import tomllib

import pytest

from proxy.agent.config_toml import encode, parse
from proxy.agent.config_tree import find
from proxy.errors import ConfigError

TEXT = """\
title = "x" # [not.a.table]
multi = '''
[neither] = "this"''''
[a . "b.c"] # d
k.l = [ "#", # no ]
  { m = 1, 'n o' = [2.5, 1979-05-27T07:32:00Z] }, ]
[[list]]
x = true
[list.sub]
y = \"\"\"\\"\"\" z\"\"\"
[[list]]
x = 0xff
"""


def test_every_value_has_its_place_in_the_text() -> None:
    tree = parse(TEXT)
    (listing,) = find(tree.root, ("a", "b.c", "k", "l"))
    assert TEXT[listing.start : listing.end].startswith('[ "#", # no ]')
    assert next(TEXT[item.start : item.end] for item in listing.items or ()) == '"#"'
    (title,) = find(tree.root, ("title",))
    assert TEXT[title.start : title.end] == '"x"'
    (lists,) = find(tree.root, ("list",))
    assert len(lists.items or ()) == 2


@pytest.mark.parametrize("text", ["x", "x = ", "[a", "x = 1\nx = 2", "a = [1", 'a = "'])
def test_what_is_no_toml_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not TOML"):
        parse(text)


@pytest.mark.parametrize("word", ["", "a b", 'q"', "b\\", "\t\n\x7f\x01", "é", "\U0001f600"])
def test_words_are_written_as_they_are_read(word: str) -> None:
    assert tomllib.loads(f"x = {encode(word)}") == {"x": word}
