"""W3C trace context, and the ids of the spans of a call. Pure.

Ids come from the call's id alone, so that an export that is repeated, by whatever process, names the same spans.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

_TRACE_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]{0,255})?")
_RANGE = 1 << 64
SAMPLED = 1

type SamplerName = Literal[
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
]
type Sampler = Callable[["TraceContext"], bool]


@dataclass(frozen=True, slots=True)
class TraceContext:
    """The trace that a call belongs to. `parent` is the client's span; None where the call came without one."""

    trace_id: bytes
    parent: bytes | None = None
    flags: int = 0

    @property
    def sampled(self) -> bool:
        return bool(self.flags & SAMPLED)


def read_traceparent(text: object) -> TraceContext | None:
    """Parse a `traceparent`; None where it is none: W3C forbids version ff, and ids that are all zero."""
    found = _TRACE_PARENT.fullmatch(text.strip(" \t")) if isinstance(text, str) else None
    # Versions to come may say more after a dash; what W3C has fixed is read all the same.
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5] is not None):
        return None
    trace_id, parent = bytes.fromhex(found[2]), bytes.fromhex(found[3])
    return TraceContext(trace_id, parent, int(found[4], 16)) if any(trace_id) and any(parent) else None


def trace_of(call_id: str, traceparent: object) -> TraceContext:
    """Return the client's trace where the call came in one, or else a trace of the call's own."""
    return read_traceparent(traceparent) or TraceContext(_digest("trace", call_id, 16))


def span_id(call_id: str, kind: Literal["server", "client"]) -> bytes:
    return _digest(kind, call_id, 8)


def _digest(what: str, call_id: str, size: int) -> bytes:
    made = sha256(f"interlock-telemetry-1\0{what}\0{call_id}".encode("utf-8", "replace")).digest()[:size]
    return made if any(made) else b"\1" * size  # all zero means "none"


def make_sampler(name: SamplerName, ratio: float = 1.0) -> Sampler:
    """Return OpenTelemetry's sampler of that name. It chooses which spans are sent; the audit trail has every call."""
    base, parent_based = name.removeprefix("parentbased_"), name.startswith("parentbased_")
    bound = {"always_on": _RANGE, "always_off": 0}.get(base, round(ratio * _RANGE))

    def sampler(context: TraceContext) -> bool:
        if parent_based and context.parent is not None:
            return context.sampled
        # The lower half of the trace id, as OpenTelemetry's SDKs do it: all parts of a trace choose alike.
        return int.from_bytes(context.trace_id[8:]) < bound

    return sampler
