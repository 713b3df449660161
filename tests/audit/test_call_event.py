"""Events of calls, as figures need them."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.audit.call_event import call_event

PLAIN = (1.0, "decided", "tools/call", "allow", "default", None, "s", "t", "a", None, None)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ((None, None, None), ((), (), ())),
        (('[{"detector": "secrets.aws"}, 5]', '["r", 1]', '["s"]'), (("secrets.aws",), ("r", "1"), ("s",))),
        (('{"detector": "x"}', '"r"', "5"), ((), (), ())),
    ],
)
def test_json_is_read_and_odd_forms_are_nothing(texts: tuple[Any, ...], found: tuple[Any, ...]) -> None:
    made = call_event((*PLAIN, *texts), 2.5)
    assert (made.detectors, made.rules, made.shadow_rules) == found
    assert made.weight == 2.5
    assert made.is_call


def test_another_method_is_no_call() -> None:
    assert not call_event((*PLAIN[:2], "tools/list", *PLAIN[3:], None, None, None)).is_call
