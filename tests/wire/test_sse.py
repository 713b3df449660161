"""Server-sent events, however the bytes are cut."""

from __future__ import annotations

import itertools
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import WireError
from proxy.wire.sse import SseEvent, SseSplitter


def split(data: bytes, cuts: list[int] | None = None) -> tuple[list[SseEvent], bytes]:
    splitter = SseSplitter(1 << 20)
    marks = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts or [])})
    events: list[SseEvent] = []
    for a, b in itertools.pairwise(marks):
        may_complete = splitter.completes(data[a:b])
        completed = list(splitter.feed(data[a:b]))
        assert may_complete or not completed
        events += completed
    return events, bytes(splitter._rest)


def told(events: list[SseEvent]) -> list[tuple[bytes, bytes | None, bytes | None]]:
    return [(event.event, event.data, event.id) for event in events if event.data is not None]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_an_event_is_read_with_any_line_end(end: bytes) -> None:
    block = end.join([b"event: endpoint", b"id: 7", b"data: a", b"data:b", b"", b""])
    events, rest = split(block)
    assert told(events) == [(b"endpoint", b"a\nb", b"7")]
    assert b"".join(event.raw for event in events) + rest == block


LINES = st.sampled_from(
    [
        b"data: x",
        b"data: \xc3\xa9\xff",
        b"data:",
        b"data",
        b"data: {}",
        b"event: e",
        b"id: 1",
        b": c",
        b":",
        b"retry: 5",
        b"",
        b"",
        b"x: y",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
STREAMS = st.lists(st.tuples(LINES, ENDS).map(b"".join), max_size=20).map(b"".join)


@given(STREAMS | st.binary(max_size=60), st.lists(st.integers(0, 500), max_size=12))
def test_however_the_bytes_are_cut_the_same_events_and_bytes_come_out(data: bytes, cuts: list[int]) -> None:
    whole, rest = split(data)
    pieces, piecemeal_rest = split(data, cuts)
    assert told(pieces) == told(whole)
    assert b"".join(event.raw for event in whole) + rest == data
    assert b"".join(event.raw for event in pieces) + piecemeal_rest == data


def by_the_standard(data: bytes) -> list[tuple[bytes, bytes | None, bytes | None]]:
    """The events of a stream, read the slow way, line by line; an id goes with its own event alone."""
    found, kind, event_id = [], b"", None
    text: list[bytes] = []
    *lines, _ = re.split(rb"\r\n|\n|\r", data.removeprefix(b"\xef\xbb\xbf"))
    for line in lines:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if any(text) or len(text) > 1:
                found.append((kind or b"message", b"\n".join(text), event_id))
            kind, event_id, text = b"", None, []
        elif name == b"data":
            text.append(value.decode("utf-8", "replace").encode())
        elif name == b"event":
            kind = value
        elif name == b"id":
            event_id = value
    return found


@given(STREAMS | st.binary(max_size=60) | st.text("da:\r\n \ufeffé", max_size=60).map(str.encode))
def test_what_is_read_is_what_the_standard_reads(data: bytes) -> None:
    assert told(split(data)[0]) == by_the_standard(data)


@given(STREAMS)
def test_byte_by_byte_the_same_events_come_out(data: bytes) -> None:
    assert told(split(data, list(range(len(data))))[0]) == told(split(data)[0])


@pytest.mark.parametrize("before", [b"", b"data: x\n\n", b": a\r\n\r\n", b"data: x\r\n\r", b"\n\n", b"\r"])
@pytest.mark.parametrize("comment", [b": ping\n", b": ping\r\n", b":\r", b": ping\n\n"])
def test_a_comment_leaves_at_once(before: bytes, comment: bytes) -> None:
    splitter = SseSplitter(100)
    sent = b"".join(event.raw for event in splitter.feed(before))
    sent += b"".join(event.raw for event in splitter.feed(comment))
    assert sent == before + comment


def test_an_event_leaves_with_its_last_byte_and_not_before() -> None:
    splitter = SseSplitter(100)
    assert list(splitter.feed(b"data: x\n")) == []
    assert [event.data for event in splitter.feed(b"\n")] == [b"x"]


def test_what_completes_no_event_is_known_beforehand() -> None:
    splitter = SseSplitter(100)
    for piece, ends in ((b"data: {", False), (b"}\r", False), (b"\n", False), (b"\r", True), (b"\ndata: x", True)):
        assert splitter.completes(piece) is ends
        assert len(list(splitter.feed(piece))) == ends


def test_half_an_event_is_left_at_the_end() -> None:
    assert split(b"data: x\n\ndata: y\n")[1] == b"data: y\n"


def test_a_byte_order_mark_is_no_part_of_the_first_field() -> None:
    events, _ = split(b"\xef\xbb\xbfdata: x\n\n\xef\xbb\xbfdata: y\n\n")
    assert told(events) == [(b"message", b"x", None)]


def test_an_event_with_empty_data_never_happened() -> None:
    assert told(split(b"id: 1\ndata: \n\n")[0]) == []


def test_an_event_past_the_limit_is_refused_whole_or_in_pieces() -> None:
    event = b"data: " + b"x" * 20 + b"\n\n"
    with pytest.raises(WireError, match="event_too_large"):
        list(SseSplitter(20).feed(event))
    rest = SseSplitter(20).feed(b"data: x\n\n" + event)
    assert next(rest).data == b"x", "what came before it counts"
    with pytest.raises(WireError, match="event_too_large"):
        next(rest)
    splitter = SseSplitter(20)
    assert list(splitter.feed(event[:20])) == []
    with pytest.raises(WireError, match="event_too_large"):
        list(splitter.feed(event[20:21]))
    assert len(list(SseSplitter(len(event)).feed(event))) == 1


@pytest.mark.parametrize("unit", [b"\n", b":\n", b"\r", b"\r\n", b": c\r\n"])
def test_many_lines_that_say_nothing_leave_as_one(unit: bytes) -> None:
    data = unit * 50_000
    events = list(SseSplitter(100).feed(data))
    assert (b"".join(event.raw for event in events), len(events)) == (data, 1)


def test_many_small_events_in_one_chunk_cost_one_pass() -> None:
    def cost(count: int) -> float:
        start = time.process_time()
        assert len(list(SseSplitter(100).feed(b"data: x\n\n" * count))) == count
        return time.process_time() - start

    assert cost(50_000) < 100 * max(cost(5_000), 0.01)


def test_a_comment_in_tiny_pieces_is_not_read_again_with_each() -> None:
    splitter = SseSplitter(1 << 24)
    assert list(splitter.feed(b":" + b"x" * (1 << 22))) == []
    start = time.process_time()
    for _ in range(5000):
        assert list(splitter.feed(b"y")) == []
    assert time.process_time() - start < 2
    assert len(list(splitter.feed(b"\n"))) == 1


def test_other_data_takes_the_place_of_all_data_lines() -> None:
    (event,), _ = split(b": c\nid: 1\nevent: message\ndata: a\ndata\ndata:b\nretry: 5\n\n"[4:])
    assert event.with_data([b"{}"]) == b"id: 1\nevent: message\nretry: 5\ndata: {}\n\n"


def test_old_data_does_not_hide_behind_a_byte_order_mark() -> None:
    (event,), _ = split(b"\xef\xbb\xbfdata: secret\n\n")
    assert event.with_data([b"{}"]) == b"data: {}\n\n"


def test_further_payloads_become_events_of_their_own() -> None:
    (event,), _ = split(b"id: 1\ndata: a\n\n")
    rewritten = event.with_data([b"1", b"2"])
    assert told(split(rewritten)[0]) == [(b"message", b"1", b"1"), (b"message", b"2", None)]


def test_no_payload_leaves_a_comment() -> None:
    assert SseEvent(b"data: x\n\n").with_data([]) == b": removed\n\n"
