"""What goes out, as fingerprints to look up; and what came in, as fingerprints to keep. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from proxy.flows.fingerprint import GRAM, Fingerprinter, Kept, disguises, normalise
from proxy.flows.readings import MAX_TEXT, Reading, Text, decoded, read_value
from proxy.flows.telling_values import KINDS, short_words, values_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from proxy.core.model import Json

TAIL: Final = 64  # bytes of each argument that are remembered: more than a run of two kept ones
MAX_TAILS: Final = 32


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The fingerprints of what goes out, the ends of its texts by name, and whether all of it was read."""

    prints: Collection[int]
    tails: Mapping[str, bytes]
    complete: bool


def keep(printer: Fingerprinter, value: Json, kinds: Collection[str] = KINDS, *, prose: bool = False) -> Kept:
    """Return the fingerprints to keep of what came in, and of the values of these kinds in it."""
    reading = read_value(value, prose=prose)
    whole = reading.whole
    readings = [whole, *_bounded(decoded(whole))]
    values = {found for text in readings for found in values_in(text, kinds)}
    kept = printer.keep(b"".join(map(normalise, readings)), values)
    return kept if reading.complete else kept._replace(complete=False)


def look(printer: Fingerprinter, texts: Sequence[Text], tails: Mapping[str, bytes], *, complete: bool) -> Outgoing:
    """Return the fingerprints of texts that go out; `tails` are the ends of what went before, by name."""
    whole = "\n".join([text for _, text in texts])
    plains, words, ends = list[bytes](), set[bytes](), dict[str, bytes]()
    for reading in (whole, *_bounded(decoded(whole))):
        plains.extend(disguises(normalise(reading)))
        words |= short_words(reading)
    # What one argument said in the calls before continues here: a text that was cut in pieces is whole again.
    for name, text in texts:
        plain = normalise(text[-4 * TAIL :] if len(text) > 4 * TAIL else text)
        if before := ends.get(name, tails.get(name, b"")):
            start = normalise(text[: 4 * TAIL])
            # Runs that lie in this text alone are found above.
            plains.extend(disguises(before + start[: GRAM - 1]))
            if len(before) + len(start) <= TAIL:
                words |= short_words((before + start).decode("utf-8", "ignore"))
        ends[name] = (before + plain)[-TAIL:] if len(plain) < TAIL else plain[-TAIL:]
    kept = {**tails, **ends}
    return Outgoing(printer.every(plains, words), dict(list(kept.items())[-MAX_TAILS:]), complete)


def read_outgoing(value: Json) -> Reading:
    """Return the texts of what goes out, the names in it too."""
    return read_value(value, names=True)


def _bounded(texts: Iterator[str]) -> Iterator[str]:
    left = 4 * MAX_TEXT
    for text in texts:
        yield text[:left]
        left -= len(text)
        if left <= 0:
            return
