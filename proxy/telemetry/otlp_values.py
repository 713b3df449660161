"""Values and attributes of OTLP: JSON to AnyValue, bounded in size. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_TEXT = 4096  # characters of an attribute: agents and servers choose what many of them say
MAX_ITEMS = 128
_INT64 = 1 << 63


def clean(text: str, limit: int = MAX_TEXT) -> str:
    """Return text that protobuf takes, which half a surrogate pair is not, of at most `limit` characters."""
    short = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return short.encode("utf-8", "replace").decode()


def any_value(value: Any) -> AnyValue:
    """Return a value as OTLP has it: a scalar, or a list of such. What it has no form for becomes text."""
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int) and -_INT64 <= value < _INT64:
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, (list, tuple)):
        return AnyValue(array_value=ArrayValue(values=[any_value(one) for one in value[:MAX_ITEMS]]))
    return AnyValue(string_value=clean(str(value)))


def attributes(values: Mapping[str, Any]) -> list[KeyValue]:
    """Return attributes; None and empty lists say nothing and are left out."""
    return [
        KeyValue(key=name, value=any_value(value))
        for name, value in values.items()
        if value is not None and value != ()
    ]


def nanoseconds(seconds: float) -> int:
    # By way of microseconds: a float of today's seconds has no more digits than that.
    return max(0, round(seconds * 1_000_000)) * 1000


def texts(values: object) -> tuple[str, ...]:
    """Return the texts of a JSON list; nothing where it is none."""
    return tuple(one for one in values if isinstance(one, str)) if isinstance(values, list) else ()
