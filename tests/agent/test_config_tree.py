"""Values with their positions."""

from __future__ import annotations

from proxy.agent.config_json import parse
from proxy.agent.config_tree import Node, apply, find, outline

TREE = parse('{"a": {"x": {"n": 1}, "y": {"n": 2}}, "a": {"z": {"n": 3}}, "s": ["b", "c"], "t": "d"}').root


def test_a_path_finds_every_value_also_under_a_repeated_key() -> None:
    assert [node.value for node in find(TREE, ("a", "*", "n"))] == [1, 2, 3]
    assert list(find(TREE, ("t", "u"))) == []


def test_a_repeated_key_has_no_one_value() -> None:
    assert TREE.get("a") is None
    assert TREE.has("a")
    assert TREE.get("nothing") is None
    assert not TREE.has("nothing")


def test_words_and_text_are_strings_only() -> None:
    words, text = TREE.get("s"), TREE.get("t")
    assert words is not None
    assert text is not None
    assert (words.words(), words.text()) == (["b", "c"], None)
    assert (text.words(), text.text()) == (None, "d")
    assert Node(items=[Node(value=1)]).words() is None


def test_an_outline_tells_apart_what_python_takes_for_equal() -> None:
    outlines = [outline(parse(f'{{"a": {value}}}').root) for value in ("1", "1.0", "true", '"1"', "[1]", "null")]
    assert all(one != other for i, one in enumerate(outlines) for other in outlines[i + 1 :])
    assert outline(parse('{"a": 1, "b": 2}').root) != outline(parse('{"b": 2, "a": 1}').root)


def test_an_outline_can_leave_nodes_out() -> None:
    one, other = parse('{"a": 1, "b": 2}').root, parse('{"a": 1, "b": 3}').root
    left = [one.get("b"), other.get("b")]
    assert outline(one, [left[0]]) == outline(other, [left[1]])  # type: ignore[list-item]


def test_edits_are_applied_whatever_their_order() -> None:
    assert apply("abcdef", [(0, 1, "A"), (4, 6, ""), (2, 2, "-")]) == "Ab-cd"
