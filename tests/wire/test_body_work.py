"""The work that one body can cause is bounded, whatever it is made of."""

from __future__ import annotations

import json
import time

import pytest

from proxy.wire import body as body_module
from proxy.wire.body import MAX_PARTS, NotMcp, ParsedBody, RefusedBody, SingleMessage, read_body, read_lines
from proxy.wire.content_coding import MAX_BROKEN, MAX_OVERLONG
from tests.support.machine_pace import slowness

SIZE = 1 << 22
CALL = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "danger"}}).encode()
# Each of these took from one to four seconds when it was read value by value, or by going back.
GENEROUS = 2.0

NASTY: dict[str, bytes] = {
    "objects": b"[" + b"{}," * (SIZE // 3) + b"{}]",
    "objects, not JSON": b"[" + b"{}," * (SIZE // 3) + b"NaN]",
    "numbers": b"[" + b"1," * (SIZE // 2) + b"1]",
    "blanks after a quote": b'{x"' + b" " * SIZE,
    "quotes": b"{" + b'"   ' * (SIZE // 4),
    "values": b"{} " * (SIZE // 3) + b"x",
    "scalars": b"1 " * (SIZE // 2),
    "overlong": b"{" + b"\xc0\xaf" * (SIZE // 2),
    "zero bytes": b"{\0" * (SIZE // 2),
    "lone surrogates": b"{\0" + b"\0\xd8" * (SIZE // 2),
    "strings": b'"{}" ' * (SIZE // 5),
}


def timed(body: bytes, *content_types: str) -> tuple[ParsedBody, float]:
    start = time.process_time()
    reading = read_body(body, content_types=content_types)
    return reading, time.process_time() - start


@pytest.mark.parametrize("body", NASTY.values(), ids=NASTY)
def test_a_nasty_body_is_judged_in_bounded_time(body: bytes) -> None:
    reading, seconds = timed(body)
    assert isinstance(reading, NotMcp | RefusedBody)
    assert seconds < GENEROUS * slowness()


@pytest.mark.parametrize("charset", ["iso-2022-jp", "hz", "utf-7", "utf-32"])
def test_bytes_without_meaning_in_their_charset_are_given_up_early(charset: str) -> None:
    reading, seconds = timed(b"\xff" * SIZE, f"text/plain; charset={charset}")
    assert isinstance(reading, RefusedBody)
    assert reading.reason == "odd_charset"
    assert seconds < GENEROUS * slowness()


def test_a_crowded_body_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(_: bytes) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr(body_module, "parse_json", parse)
    monkeypatch.setattr(body_module, "read_json", parse)
    assert read_body(b"[" + b"{}," * MAX_PARTS + b"{}]") == NotMcp()


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"{}," * MAX_PARTS + CALL + b"]",
        CALL[:-1] + b',"x":[' + b"1," * MAX_PARTS + b"1]}",
        (b"[" + b"1," * MAX_PARTS + CALL + b"]").decode().encode("utf-16"),
        b"[" + b"1," * MAX_PARTS + CALL.replace(b"j", b"\xc1\xaa").replace(b"t", b"\xc1\xb4") + b"]",
        b"[1" + b", 1" * MAX_PARTS + b"]\n" + CALL.replace(b"tools/call", b"tools\\u002fcall"),
    ],
    ids=["among objects", "with a long list", "UTF-16", "overlong", "after a list"],
)
def test_a_message_in_a_crowded_body_is_refused_by_its_words(body: bytes) -> None:
    assert isinstance(read_body(body), RefusedBody)


def test_a_string_of_any_length_and_content_is_read() -> None:
    text = CALL[:-1] + b',"x":"' + b"{,}" * 10 + b'"}'
    padded = json.dumps(" " * MAX_PARTS + text.decode()).encode()
    reading = read_body(padded)
    assert isinstance(reading, RefusedBody)
    assert (reading.reason, reading.id) == ("double_encoded", 7)


def test_a_long_list_of_ordinary_objects_is_read_to_its_end() -> None:
    objects = b"[" + b'{"a":1},' * 200_000
    assert read_body(objects + b"{}]") == NotMcp()
    assert not isinstance(read_body(objects + CALL + b"]"), NotMcp)


def test_a_large_message_that_is_not_crowded_is_read() -> None:
    body = CALL[:-2] + b',"arguments":{"x":"' + b"y" * (4 * MAX_PARTS) + b'"}}}'
    assert isinstance(read_body(body), SingleMessage)


def test_past_the_cap_overlong_characters_are_refused_unread() -> None:
    assert read_body(b"{" + b"\xc0\xaf" * (MAX_OVERLONG - 1)) == NotMcp()
    assert isinstance(read_body(b"{" + b"\xc0\xaf" * (MAX_OVERLONG + 1)), RefusedBody)


def test_a_message_is_found_among_zero_bytes_that_are_no_encoding() -> None:
    body = CALL.decode().encode("utf-32-le") + b"\xff" * 8 * MAX_BROKEN
    assert isinstance(read_body(body), RefusedBody)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\n\n\r"])
@pytest.mark.parametrize("garbage", ["hello", "{", ")]}',", "# x", "data: 1"])
@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-16-be"])
def test_a_message_on_a_line_after_garbage_is_refused(garbage: str, end: str, codec: str) -> None:
    reading = read_lines((garbage + end + CALL.decode() + end).encode(codec))
    assert isinstance(reading, RefusedBody)
    assert reading.reason == "not_json"


def test_a_message_on_a_line_is_refused_with_its_id() -> None:
    reading = read_lines(b"hello\n" + CALL)
    assert isinstance(reading, RefusedBody)
    assert (reading.id, reading.method) == (7, "tools/call")


def test_a_batch_or_a_string_on_a_line_is_refused() -> None:
    assert isinstance(read_lines(b"x\n[" + CALL + b"]"), RefusedBody)
    assert isinstance(read_lines(b"x\n" + json.dumps(CALL.decode()).encode()), RefusedBody)


@pytest.mark.parametrize(
    "text",
    [
        "hello\nworld",
        "one {} two\nthree",
        json.dumps({"variables": {"method": "tools/call", "names": ["tools/call"]}}, indent=2),
        "",
    ],
)
def test_ordinary_lines_are_foreign(text: str) -> None:
    assert read_lines(text.encode()) == NotMcp()


@pytest.mark.parametrize("line", [b"\n", b"x\n", b"{x\n", b'"x\n'])
def test_judging_lines_is_bounded(line: bytes) -> None:
    start = time.process_time()
    assert read_lines(line * (SIZE // len(line))) == NotMcp()
    assert time.process_time() - start < GENEROUS * slowness()


def test_past_the_cap_lines_are_judged_by_their_words() -> None:
    assert isinstance(read_lines(b"x\n" * 200_000 + CALL), RefusedBody)
