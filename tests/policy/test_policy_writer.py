import pytest

from proxy.policy.policy_writer import write_yaml
from proxy.policy.yaml_file import parse_yaml, plain_values

ODD = {
    "a": "\u202e\x1b[31m: #\n- x",
    "yes": "yes",
    "1": "1",
    "n": [1, 1.5, None, True],
    "e": {},
    "l": [],
    "long": "x y " * 90,
}


def test_what_is_written_reads_as_the_same_and_shows_every_character():
    text = write_yaml(ODD)
    assert text.isascii()
    assert "\x1b" not in text
    assert plain_values(parse_yaml(text.encode())) == ODD


@pytest.mark.parametrize(
    "text", ["null", "~", "0x10", "1e3", "on", "2026-01-01", "=", "&a", "*a", "!x", "%", "@", "`", ""]
)
def test_text_that_yaml_would_take_for_something_else_stays_text(text):
    assert plain_values(parse_yaml(write_yaml({"t": text}).encode())) == {"t": text}


def test_the_order_stays():
    assert write_yaml({"b": 1, "a": 2}) == "b: 1\na: 2\n"


def test_what_stands_twice_is_written_twice():
    shared = ["x"]
    assert write_yaml({"a": shared, "b": shared}) == "a:\n- x\nb:\n- x\n"


@pytest.mark.parametrize(
    "text", ["\u0e14\u0e49" * 80, "\U0001f468\u200d\U0001f9b0 " * 20, "\x85 \u2028 " * 40, "a b " * 80, " x "]
)
def test_a_long_text_is_read_as_it_was_written(text):
    assert plain_values(parse_yaml(write_yaml({"text": [text], text: 1}).encode())) == {"text": [text], text: 1}
