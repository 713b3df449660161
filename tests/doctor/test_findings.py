"""Examinations are carried out in bounded time, and what is wrong with one is a finding."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from proxy.doctor.findings import CheckResult, fail, ok, run_checks, warn
from proxy.errors import ConfigError


def test_what_is_found_comes_in_order_whatever_goes_wrong() -> None:
    never = threading.Event()

    def broken() -> Iterator[CheckResult]:
        yield ok("b", "first")
        raise KeyError("x")

    def refused() -> Iterator[CheckResult]:
        raise ConfigError("the way out")
        yield

    found = list(
        run_checks(
            [
                ("hangs", lambda: [ok("hangs", str(never.wait()))]),
                ("a", lambda: [ok("a", "one"), warn("a", "two", "do")]),
                ("b", broken),
                ("c", refused),
            ],
            0.3,
        )
    )
    never.set()
    assert [(one.check, one.state) for one in found] == [
        ("hangs", "fail"),
        ("a", "ok"),
        ("a", "warn"),
        ("b", "fail"),
        ("c", "fail"),
    ]
    assert "no answer within" in found[0].said
    assert found[4].said == "the way out"
    assert all(one.mend for one in found if one.state != "ok")
    assert fail("x", "y", "z").data() == {"check": "x", "state": "fail", "said": "y", "mend": "z"}
