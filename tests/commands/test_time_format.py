"""Points in time on the command line."""

from __future__ import annotations

import pytest

from proxy.commands.time_format import format_exact_time, format_time, parse_age, parse_time
from proxy.errors import ConfigError

NOW = 1_763_000_000.0


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", NOW - 90),
        ("30m", NOW - 1800),
        ("12h", NOW - 43_200),
        ("7d", NOW - 604_800),
        ("2w", NOW - 1_209_600),
        ("999999999w", 0.0),
        ("2025-11-13", 1_762_992_000.0),
        ("2025-11-13T02:13:20", NOW),
        ("2025-11-13T02:13:20Z", NOW),
        ("2025-11-13 03:13:20+01:00", NOW),
        ("1900-01-01", 0.0),
    ],
)
def test_an_age_or_a_time_is_a_moment(text: str, moment: float) -> None:
    assert parse_time(text, "--since", NOW) == moment


@pytest.mark.parametrize("text", ["", "soon", "7", "7y", "-7d", "7 d", "\u0667d", "2025-13-01", "\x1b[31m"])
def test_what_is_neither_is_refused_by_name_with_the_way_out(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--until.*write 7d"):
        parse_time(text, "--until", NOW)


def test_an_age_names_the_option_it_came_from() -> None:
    with pytest.raises(ConfigError, match=r"--before 'x'.*write 90s"):
        parse_age("x", "--before")


def test_a_moment_is_spelt_in_utc_to_the_second_or_to_the_millisecond() -> None:
    assert format_time(NOW + 0.9) == "2025-11-13 02:13:20"
    assert format_exact_time(NOW + 0.5) == "2025-11-13 02:13:20.500"
    assert format_time(None) == format_exact_time(None) == ""
