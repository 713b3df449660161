"""Times on the command line: parsed from options, and printed in tables."""

from __future__ import annotations

import datetime as dt
import re

from proxy.errors import ConfigError

SECONDS = len("2026-01-31 18:00:00")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"([0-9]{1,9})([smhdw])")


def parse_age(text: str, option: str = "--since") -> float:
    """Return the seconds of a duration such as `7d`. Raises ConfigError."""
    match = _AGE.fullmatch(text)
    if match is None:
        raise ConfigError(f"{option} {text!r} is not a duration; write 90s, 30m, 12h, 7d or 2w")
    return int(match[1]) * _UNITS[match[2]]


def parse_time(text: str, option: str, now: float) -> float:
    """Return seconds since the epoch for an age (`7d`) or a time (`2026-01-31T18:00+01:00`; UTC without a zone).

    Never less than 0. Raises ConfigError.
    """
    if _AGE.fullmatch(text):
        return max(0.0, now - parse_age(text, option))
    try:
        when = dt.datetime.fromisoformat(text)
        if when.tzinfo is None:
            when = when.replace(tzinfo=dt.UTC)
        return max(0.0, when.timestamp())
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{option} {text!r} is neither an age nor a time; write 7d (or s, m, h, w), "
            "2026-01-31 or 2026-01-31T18:00+01:00"
        ) from error


def format_time(moment: float | None) -> str:
    """Return a time in UTC to the second, as every command prints it; an empty string for None."""
    return format_exact_time(moment)[:SECONDS]


def format_exact_time(moment: float | None) -> str:
    """Return a time in UTC to the millisecond, for what happens within a second; an empty string for None."""
    if moment is None:
        return ""
    return f"{dt.datetime.fromtimestamp(moment, dt.UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
