"""Masking a text in chunks gives what masking it whole would."""

from __future__ import annotations

import base64
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.redact.mask import Masker
from proxy.redact.stream import LOOK_AHEAD, MAX_HELD, StreamMasker

AWS = "AKIA" + "IOSFODNN7EXAMPLE"
MASKER = Masker(b"a key for tests alone")
BOTH = ("secrets", "pii")
PEM = "-----BEGIN PRIVATE KEY-----\n" + "Ab3\n" * 900 + "-----END PRIVATE KEY-----"
TEXT = "\n".join(
    [
        "line with words — and an ü " * 60,
        f"key {AWS} and more",
        "filler " * 300,
        f"password = hunter2! and {base64.b64encode(AWS.encode()).decode()}",
        PEM,
        "tail " * 400 + "bob@example.com",
    ]
)


def _streamed(chunks: list[str]) -> tuple[str, set[str]]:
    stream = StreamMasker(MASKER, BOTH)
    text = "".join([*(stream.feed(chunk) for chunk in chunks), stream.close()])
    return text, {finding.detector for finding in stream.findings}


@pytest.mark.parametrize("size", [1, 7, 100, 1000, 5000])
def test_chunks_of_any_size_give_the_text_masked_whole(size: int):
    text = TEXT if size > 50 else TEXT[1500:2500]
    whole, findings = MASKER.mask(text, BOTH)
    streamed, found = _streamed([text[i : i + size] for i in range(0, len(text), size)])
    assert streamed == whole
    assert found == {finding.detector for finding in findings}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, len(TEXT)), max_size=8))
def test_cuts_anywhere_leave_no_secret(cuts: list[int]):
    edges = [0, *sorted(cuts), len(TEXT)]
    streamed, _ = _streamed([TEXT[low:high] for low, high in pairwise(edges)])
    assert streamed == MASKER.mask(TEXT, BOTH)[0]


def test_settled_text_is_given_before_the_end():
    stream = StreamMasker(MASKER, BOTH)
    assert len(stream.feed("word " * LOOK_AHEAD)) > LOOK_AHEAD


def test_a_finding_too_long_to_hold_swallows_the_rest():
    stream = StreamMasker(MASKER, BOTH)
    given_text = stream.feed("-----BEGIN PRIVATE KEY-----\n")
    for _ in range(3 * MAX_HELD // 60_000):
        given_text += stream.feed("Ab3d" * 15_000)
    given_text += stream.feed(" ordinary words") + stream.close()
    assert given_text.startswith("[secret:private-key:")
    assert "Ab3d" not in given_text


def test_a_blob_without_words_flows_on():
    stream = StreamMasker(MASKER, BOTH)
    blob = base64.b64encode(bytes(range(251)) * 3000).decode()
    text = "".join(stream.feed(blob[i : i + 50_000]) for i in range(0, len(blob), 50_000)) + stream.close()
    assert text == blob


def test_an_empty_stream_gives_nothing():
    stream = StreamMasker(MASKER, BOTH)
    assert stream.close() == ""
    assert stream.findings == ()
