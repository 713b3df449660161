"""Points in time, as they are given on the command line."""

from __future__ import annotations

import datetime as dt
import re

from proxy.errors import ConfigError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"([0-9]{1,9})([smhdw])")


def parse_age(text: str, option: str = "--since") -> float:
    """Read a length of time such as `7d`, in seconds. Raises ConfigError."""
    match = _AGE.fullmatch(text)
    if match is None:
        raise ConfigError(f"{option} {text!r} is not a length of time; write 90s, 30m, 12h, 7d or 2w")
    return int(match[1]) * _UNITS[match[2]]


def parse_time(text: str, option: str, now: float) -> float:
    """Read how long ago (`7d`) or when (`2026-01-31`, `2026-01-31T18:00+01:00`; UTC where no zone is given).

    Gives seconds since the epoch, never less than 0. Raises ConfigError.
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
    """Show a point in time, in UTC."""
    if moment is None:
        return ""
    return f"{dt.datetime.fromtimestamp(moment, dt.UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
