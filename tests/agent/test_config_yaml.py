"""YAML: values and positions."""

from __future__ import annotations

import pytest
from ruamel.yaml import YAML

from proxy.agent.config_tree import find
from proxy.agent.config_yaml import encode, parse
from proxy.errors import ConfigError

TEXT = """\
# first
a:   # b
  - x y   # c
  - "q"
  - 1
d: {e: ~, f: [g]}
"""


def test_every_value_has_its_place_in_the_text() -> None:
    tree = parse(TEXT)
    (listing,) = find(tree.root, ("a",))
    assert [TEXT[item.start : item.end] for item in listing.items or ()] == ["x y", '"q"', "1"]
    assert listing.on_lines
    assert listing.words() is None
    (flow,) = find(tree.root, ("d", "f"))
    assert flow.words() == ["g"]
    assert not flow.on_lines


@pytest.mark.parametrize("text", ["", "a", "- a", "a: [", "a: b: c", "a: &x {b: *x}", "---\na: 1\n---\nb: 2\n"])
def test_what_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text)


@pytest.mark.parametrize(
    "word", ["", "--", "yes", "~", "a: b", "#", 'q"', "b\\", "\t\n\x7f\x85", "é", "\U0001f600", "- x"]
)
def test_words_are_written_as_they_are_read(word: str) -> None:
    assert YAML(typ="safe").load(f"x: {encode(word)}") == {"x": word}
