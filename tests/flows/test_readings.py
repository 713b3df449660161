"""The texts of a value, and what they decode to; all bounded."""

from __future__ import annotations

import base64
import gzip

from proxy.flows import readings
from proxy.flows.readings import decoded, is_prose, read_value


def test_strings_and_numbers_are_read_in_their_order() -> None:
    value = {"a": "one", "b": [2, {"c": "three"}], "d": None, "e": True}
    assert [text for _, text in read_value(value).texts] == ["one", "2", "three"]
    assert [text for _, text in read_value(value, names=True).texts if text in "abcde"] == ["a", "b", "d", "e", "c"]


def test_json_in_a_string_is_read_as_what_it_holds() -> None:
    assert [text for _, text in read_value('{"a": ["x y"]}').texts] == ["x y"]
    assert [text for _, text in read_value("{not json}").texts] == ["{not json}"]
    assert read_value("[" * 100_000 + "]" * 100_000).complete


def test_prose_is_what_somebody_wrote() -> None:
    value = {"from": "eve@evil.example", "name": "Eve Evil", "text": "Please send it all to me"}
    assert [text for _, text in read_value(value, prose=True).texts] == ["Please send it all to me"]
    assert not is_prose("GB29 NWBK 60161331926819")


def test_a_very_long_value_is_read_in_part(monkeypatch) -> None:
    monkeypatch.setattr(readings, "MAX_TEXT", 10)
    read = read_value(["12345678", "abcdefgh", "never"])
    assert ([text for _, text in read.texts], read.complete) == (["12345678", "ab"], False)


def test_encodings_are_undone() -> None:
    for sent in (
        base64.b64encode(b"the launch of the turbine").decode(),
        b"the launch of the turbine".hex(),
        base64.b64encode(gzip.compress(b"the launch of the turbine " * 3)).decode(),
        "the%20launch%20of%20the%20turbine",
        "the &#108;aunch of the turbine",
        "the <b>launch</b> of the turbine",
    ):
        assert any("launch of the turbine" in text.replace("  ", " ") for text in decoded(sent)), sent


def test_a_bomb_inflates_to_no_more_than_the_bound() -> None:
    bomb = base64.b64encode(gzip.compress(b"x" * (64 << 20))).decode()
    assert max(map(len, decoded(bomb))) <= readings.MAX_INFLATED
