"""Runs that may be encoded are found, and the same ones whichever way they are looked for."""

from __future__ import annotations

import base64
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.redact import encoded_spans
from proxy.redact.mask import Masker

RUN = re.compile(rb"[A-Za-z0-9+/_-]{20,}={0,2}")
WORDS = st.sampled_from(
    [b"a" * 19, b"B" * 20, b"x/+_-9" * 9, b"=", b"==", b"===", b" ", b"\n", b"\xc3\xa9", b"\x00", b","]
)
PAIRS = st.sampled_from([b"41", b"4b ", b"0x", b":", b"de:", b"AD, ", b"  ", b"\n", b"g"])
AWS = "AKIA" + "IOSFODNN7EXAMPLE"


@given(st.lists(WORDS, max_size=30).map(b"".join))
def test_every_run_of_base64_is_found_whole(data: bytes):
    expected = [match.span() for match in RUN.finditer(data)]
    assert encoded_spans.base64_runs(data) == expected
    assert encoded_spans._spans(encoded_spans._BASE64, data) == expected
    assert encoded_spans._long_words(data) == expected


@given(st.lists(st.tuples(WORDS, st.integers(0, 9000), WORDS), max_size=14), st.sampled_from([b" ", b"x ", b"="]))
def test_runs_far_from_each_other_are_found_whole(parts: list[tuple[bytes, int, bytes]], filler: bytes):
    data = b"".join(word + filler * (size // len(filler)) + other for word, size, other in parts)
    assert encoded_spans.base64_runs(data) == [match.span() for match in RUN.finditer(data)]


@given(st.lists(PAIRS, max_size=80).map(b"".join))
def test_every_line_of_hexadecimal_is_found_whole(data: bytes):
    assert encoded_spans.hex_lines(data) == encoded_spans._spans(encoded_spans._HEX_LINES, data)


def test_without_hyperscan_the_same_is_found(monkeypatch: pytest.MonkeyPatch):
    data = b"x " + b"QUJD" * 9 + b"== " + b"41:4b:49:" * 8
    found = encoded_spans.base64_runs(data), encoded_spans.hex_lines(data)
    monkeypatch.setattr(encoded_spans, "AVAILABLE", False)
    assert (encoded_spans.base64_runs(data), encoded_spans.hex_lines(data)) == found
    assert all(found)


@pytest.mark.parametrize("separator", [b" ", b"\n", b", ", b"=="])
def test_a_large_text_that_is_mostly_runs_is_split_with_the_same_result(separator: bytes):
    source = random.Random(3)
    words = [source.randbytes(source.randint(9, 40)).hex().encode() for _ in range(2000)]
    data = separator.join(words)
    assert encoded_spans._is_dense(data)
    assert encoded_spans.base64_runs(data) == [match.span() for match in RUN.finditer(data)]


def test_a_text_that_is_one_long_run_is_decoded():
    masker = Masker(b"a key for tests alone")
    encoded = base64.b64encode(b"\xff\xfe binary " * 3000 + AWS.encode()).decode()
    masked, findings = masker.mask({"blob": encoded}, ["secrets"])
    assert [finding.detector for finding in findings] == ["secrets.aws-access-key"]
    assert masked["blob"].startswith("[secret:aws-access-key:")
