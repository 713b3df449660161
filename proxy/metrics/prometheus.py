"""Metrics as Prometheus reads them: text, version 0.0.4. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.metrics.counters import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from proxy.metrics.counters import Family

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

type Sums = Iterable[tuple[Family, tuple[str, ...], Sequence[float]]]


def expose(sums: Sums) -> Iterator[str]:
    """Get the lines of what workers counted. Of a counter with labels, those that were never counted are left out."""
    told = None
    for family, values, numbers in sums:
        if family is not told:
            told = family
            yield from _head(family.name, family.kind, family.help)
        labels = dict(zip(family.labels, values, strict=True))
        if family.kind == "histogram":
            yield from _histogram(family.name, labels, numbers)
        elif numbers[0] or not labels:
            yield _line(family.name, labels, numbers[0])


def gauge(name: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]], kind: str = "gauge") -> list[str]:
    """Return the lines of a metric that is known when it is asked for."""
    return [*_head(name, kind, text), *(_line(name, labels, value) for labels, value in samples)]


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _histogram(name: str, labels: Mapping[str, str], numbers: Sequence[float]) -> Iterator[str]:
    total = 0.0
    for bound, number in zip((*map(str, BUCKETS), "+Inf"), numbers[:-1], strict=True):
        total += number
        yield _line(f"{name}_bucket", {**labels, "le": bound}, total)
    yield _line(f"{name}_sum", labels, numbers[-1])
    yield _line(f"{name}_count", labels, total)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    encoded = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    number = str(int(value)) if value == int(value) else repr(value)
    return f"{name}{{{encoded}}} {number}" if encoded else f"{name} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
