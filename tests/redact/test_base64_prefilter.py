"""What is called noise is noise: the built-in detectors are as it takes them, and what is encoded is promising."""

from __future__ import annotations

import base64
import random
import re
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.redact import Masker, builtin
from proxy.redact.base64_prefilter import LARGEST_NOISE, LEAST_TEXT, WORDS, unproven
from proxy.redact.scan import scanner_for
from tests.redact import labelled

pytest.importorskip("hyperscan", reason="no hyperscan for this platform: nothing is called noise")

MASKER = Masker(b"k" * 32)
SCANNER = scanner_for(builtin())
ALL = builtin().select(("secrets", "pii"))
SECRETS = [sample.text.encode() for sample in labelled.load() if sample.positive and not sample.is_json]
PATHS = (b"/srv/projects/atlas/src/reading", b"test_what_is_called_noise_is_noise", b"useLayoutEffectOnServer")
BINARY = st.binary(max_size=9).map(lambda data: bytes(byte | 0x80 for byte in data))


class Runs(NamedTuple):
    """How many printable bytes in a row every match has: all of it, if it is, at its start, its end, anywhere."""

    whole: int | None
    first: int
    last: int
    best: int

    def then(self, other: Runs) -> Runs:
        return Runs(
            None if self.whole is None or other.whole is None else self.whole + other.whole,
            self.first if self.whole is None else self.whole + other.first,
            other.last if other.whole is None else other.whole + self.last,
            max(self.best, other.best, self.last + other.first),
        )


NOTHING, PRINTABLE, ANYTHING = Runs(0, 0, 0, 0), Runs(1, 1, 1, 1), Runs(None, 0, 0, 0)


def runs_of(tree: Any) -> Runs:
    runs = NOTHING
    for kind, value in tree:
        runs = runs.then(_runs(kind, value))
    return runs


def _runs(kind: Any, value: Any) -> Runs:
    if kind is op.AT:
        return NOTHING
    if kind in {op.LITERAL, op.IN}:
        return PRINTABLE if _is_printable([(kind, value)] if kind is op.LITERAL else value) else ANYTHING
    if kind is op.SUBPATTERN:
        return runs_of(value[3])
    if kind is op.BRANCH:
        branches = [runs_of(branch) for branch in value[1]]
        wholes = [branch.whole for branch in branches]
        whole = None if None in wholes else min(branch.whole or 0 for branch in branches)
        return Runs(whole, *(min(branch[side] or 0 for branch in branches) for side in (1, 2, 3)))
    if kind in {op.MAX_REPEAT, op.MIN_REPEAT}:
        least, most, tree = value
        once, runs = runs_of(tree), NOTHING
        for _ in range(min(least, 99)):
            runs = runs.then(once)
        # Further printable ones only make a run longer; others may end it.
        return runs if least == most or once.whole is not None else runs.then(ANYTHING)
    return ANYTHING


def _is_printable(members: Any) -> bool:
    pattern = {
        op.LITERAL: lambda code: 32 <= code < 127,
        op.RANGE: lambda ends: ends[0] >= 32 and ends[1] < 127,
        op.CATEGORY: lambda category: category in {op.CATEGORY_DIGIT, op.CATEGORY_WORD},
    }
    return all(kind in pattern and pattern[kind](value) for kind, value in members)


def least_text(regex: str) -> int:
    """Return the printable bytes that any match of `regex` has in a row, at least."""
    return runs_of(parser.parse(regex.replace("(?i)", "").encode())).best


@pytest.mark.parametrize(
    ("regex", "least"),
    [("abc", 3), ("ab?c", 2), (r"ab\s?cde", 3), ("(?:ab|c)[^x]*d{4}", 4), (r"[^\s]{9}", 0), ("(?:a.)+", 1), ("a*", 0)],
)
def test_the_least_text_of_an_expression_is_counted(regex: str, least: int):
    assert least_text(regex) == least


@pytest.mark.parametrize("detector", builtin().detectors, ids=lambda detector: detector.id)
def test_a_built_in_detector_needs_as_much_text_or_one_of_the_words(detector: Any):
    named = bool(detector.keywords) and all(any(word in keyword for word in WORDS) for keyword in detector.keywords)
    assert named or least_text(detector.pattern) >= LEAST_TEXT


def test_a_policys_own_detector_is_proven_by_long_keywords_alone():
    plain = {"description": "A badge", "regex": "[0-9]{3}"}
    words = ((), ("badge",), ("badge-", "id"), ("badge-", "badge_"), ("b\nadge",), ("bad\u00e9ge",))
    own = [{**plain, "id": f"secrets.own{number}", "keywords": list(each)} for number, each in enumerate(words)]
    catalog = builtin().extended(own)
    assert {catalog.detectors[index].keywords for index in unproven(catalog)} == {*words} - {words[3]}
    assert not unproven(builtin())


@pytest.mark.parametrize("path", PATHS)
def test_paths_and_names_are_noise(path: bytes):
    assert SCANNER.is_noise(b'"path": "%b"\n"other": "x"\n' % path)


@pytest.mark.parametrize("padding", [b"", b"=", b"=="])
@pytest.mark.parametrize("space", [b"", b" ", b" \t \t"])
def test_a_run_that_may_go_on_in_the_next_line_is_promising_in_a_long_text_too(padding: bytes, space: bytes):
    long = b"words and names " * 400 + b"/srv/projects/atlas/src/reading" + padding + space
    assert SCANNER.is_noise(long + b" and" + long)
    for end in (b"\n", b"\r", b"\\n"):
        assert not SCANNER.is_noise(long + end + b"and" + long)


def test_of_a_large_text_nothing_is_said():
    assert not SCANNER.is_noise(b" " * (LARGEST_NOISE + 1))


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("more", range(3))
def test_what_is_encoded_among_binary_data_is_promising(place: int, more: int):
    source = random.Random(place)
    for text in (
        *SECRETS,
        *(word.encode() for word in WORDS),
        b"PWD",
        b"a@b.co",
        b"%41",
        b"\\x41",
        b"\\u0041",
        b"&#x41;",
    ):
        before, after = source.randbytes(15 + place), source.randbytes(more)
        encoded = base64.b64encode(bytes(byte | 0x80 for byte in before) + text[:2000] + after)
        for start in (b"", b"/a/b"):
            assert not SCANNER.is_noise(b'"%b%b"' % (start, encoded)), text
            assert not SCANNER.is_noise(b'%b"%b%b"' % (b"words and names " * 400, start, encoded)), text
            assert not SCANNER.is_noise(start + encoded.rstrip(b"=").translate(bytes.maketrans(b"+/", b"-_"))), text


@given(
    st.lists(
        st.tuples(BINARY, st.sampled_from(SECRETS), st.integers(0, 40), BINARY, st.sampled_from(PATHS)), max_size=4
    )
)
def test_in_what_is_noise_the_whole_way_finds_nothing(parts: list[tuple[bytes, bytes, int, bytes, bytes]]):
    encoded = [base64.b64encode(one + text[:size] + other) for one, text, size, other, _ in parts]
    value = [(path[: len(code) % 20] + code).decode() for code, (*_, path) in zip(encoded, parts, strict=True)]
    if SCANNER.is_noise(" ".join(value).encode()) and not re.search(r"[\\%]", "".join(value)):
        # Without a word on known secrets, all is decoded.
        layers = MASKER.layers(" ".join(value).encode(), ALL, entirely=True)
        assert not any(matches for _, matches in layers)
