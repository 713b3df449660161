"""The options that choose calls and events."""

from __future__ import annotations

import pytest

from proxy.commands.audit.filter import read_filter
from proxy.core.event import Filter
from proxy.errors import ConfigError


def test_nothing_given_fits_everything() -> None:
    assert read_filter() == Filter()


def test_every_option_is_part_of_the_filter() -> None:
    made = read_filter(
        "2025-11-13", "2025-11-14", "ada", "s", "t*", "deny", "r", ["path=/etc", "a.b[0]=x=y", "n=", '["k=v"].a=1=']
    )
    assert made == Filter(
        since=1_762_992_000.0,
        until=1_763_078_400.0,
        agent="ada",
        server="s",
        tool="t*",
        decision="deny",
        rule="r",
        arguments=(("path", "/etc"), ("a.b[0]", "x=y"), ("n", ""), ('["k=v"].a', "1=")),
    )


@pytest.mark.parametrize("text", ["path", "", "=x", "a..b=x", ".a=x", "a.=x", "[0]x=1", "a[]=1", '["a=1'])
def test_an_argument_without_path_or_value_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--arg .* write path=/etc/passwd"):
        read_filter(arg=[text])


def test_a_span_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ConfigError, match="--since 1h is not before --until 2h"):
        read_filter("1h", "2h")
