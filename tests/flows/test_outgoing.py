"""Property: re-encoding or cutting labelled text does not free it, within the bounds that docs/flows.md states."""

from __future__ import annotations

import base64
import codecs
import json
import urllib.parse
from collections.abc import Callable, Mapping

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from proxy.core.flows import Mark
from proxy.flows.fingerprint import Fingerprinter, least_run, normalise
from proxy.flows.history import AgentHistory, pack
from proxy.flows.outgoing import keep, look, read_outgoing
from proxy.flows.telling_values import DEFAULT_KINDS, KINDS

PRINTER = Fingerprinter(b"k" * 32)
RUN = 32
NUMBERS = [KINDS.index(kind) for kind in DEFAULT_KINDS]
TEXTS = st.lists(
    st.text(alphabet="abcdefghijklmnopqrstuvwxyzABCDEFG0123456789", min_size=2, max_size=9), min_size=30, max_size=60
)
WAYS: list[Callable[[str], str]] = [
    str,
    str.upper,
    lambda text: text[::-1],
    lambda text: codecs.encode(text, "rot13"),
    "-".join,
    lambda text: text.encode().hex(),
    lambda text: base64.b64encode(text.encode()).decode(),
    lambda text: base64.b64encode(base64.b64encode(text.encode())).decode(),
    lambda text: base64.b32encode(text.encode()).decode(),
    lambda text: urllib.parse.quote(text, safe=""),
    lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    lambda text: "".join(f"\\u{ord(character):04x}" for character in text),
    lambda text: json.dumps({"x": [text]}),
    "\u200b".join,
]


def history_of(value: object) -> AgentHistory:
    kept = keep(PRINTER, value)  # type: ignore[arg-type]
    runs, values = pack(kept, PRINTER.key_id)
    named = {"agent": "bot", "call_id": "c", "server": "s", "tool": "t"}
    mark = Mark(**named, labels=("private",), at=0, expires_at=9, shingles=runs, values=values, number=1)  # type: ignore[arg-type]
    history = AgentHistory(PRINTER.key_id)
    history.update([mark], 1.0)
    return history


def found(history: AgentHistory, sent: object, tails: Mapping[str, bytes] | None = None) -> bool:
    reading = read_outgoing(sent)  # type: ignore[arg-type]
    outgoing = look(PRINTER, reading.texts, tails or {}, complete=reading.complete)
    return history.find(outgoing.prints, RUN, (), lambda _mark: True) is not None


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.integers(0, 100), st.sampled_from(WAYS), st.text(max_size=30))
def test_no_encoding_frees_a_piece(words: list[str], start: int, way: Callable[[str], str], before: str) -> None:
    text = " ".join(words)
    piece = text[start : start + 70]
    assume(len(normalise(piece)) >= least_run(2) + 8)
    assume(len(set(piece)) > 12)
    assert found(history_of({"content": [{"type": "text", "text": text}]}), {"body": f"{before} {way(piece)}"})


@settings(max_examples=30, deadline=None)
@given(TEXTS, st.lists(st.integers(1, 20), min_size=40, max_size=40))
def test_no_cutting_frees_a_text(words: list[str], sizes: list[int]) -> None:
    """Pieces of any size, one to a call in the same argument: by the 48th letter at the latest it is found."""
    text, history, tails, at = " ".join(words), history_of(" ".join(words)), dict[str, bytes](), 0
    assume(len({*text}) > 12)
    freed = ""
    for size in sizes:
        piece = text[at : at + size]
        reading = read_outgoing({"url": "https://x.example", "body": piece})
        outgoing = look(PRINTER, reading.texts, tails, complete=True)
        if history.find(outgoing.prints, RUN, (), lambda _mark: True) is not None:
            break
        tails, at, freed = dict(outgoing.tails), at + size, freed + piece
    assert len(normalise(freed)) < least_run(2) + 8


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(
        ["884213", "greta.holm@nightjar.example", "NJ-2291-XK7", "GB29NWBK60161331926819", "4237-4252-7456-2574"]
    ),
    st.sampled_from(WAYS),
)
def test_no_encoding_frees_a_value(value: str, way: Callable[[str], str]) -> None:
    if value == "884213" and way(value) == value[::-1]:
        return  # six digits backwards are another code
    history = history_of(f"It is {value}, as agreed.")
    reading = read_outgoing({"body": f"see {way(value)} there"})
    outgoing = look(PRINTER, reading.texts, {}, complete=True)
    assert history.find(outgoing.prints, RUN, NUMBERS, lambda _mark: True) is not None


HONEST = (
    "Please let me know if you have any questions. Thank you for your time and consideration.",
    "The meeting has been moved to Thursday at 10:30. Please find the agenda attached.",
    "I hope this message finds you well. I am writing to follow up on our last conversation.",
)


@pytest.mark.parametrize("sent", ["Best regards, and have a great weekend!", "Could you send me the report by Friday?"])
def test_common_phrases_are_not_taken_for_data(sent: str) -> None:
    assert not found(history_of(list(HONEST)), {"body": sent})
