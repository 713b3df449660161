from __future__ import annotations

from typing import Any

from proxy.trace.observed_violations import MAX_RECORDED, with_violations
from tests.sandbox.test_violations import GRANTED


def record(*paths: str, error: str | None = None) -> dict[str, Any]:
    entries = [{"capability": "fs.read", "action": "open", "path": path, "error": error} for path in paths]
    return {"phase": "call", "observations": entries}


def test_a_record_says_what_the_profile_does_not_grant() -> None:
    told = with_violations(record("/data/a", "/etc/shadow", "/etc/shadow", error="EACCES"), GRANTED, enforced=True)
    assert told["violations"] == [
        {
            "capability": "fs.read",
            "action": "open",
            "target": "/etc/shadow",
            "line": "read and write do not list it",
            "mechanism": "landlock",
            "error": "EACCES",
            "count": 2,
        }
    ]
    assert len(told["observations"]) == 3


def test_a_record_without_violations_stays_as_it_is() -> None:
    for fine in (record("/data/a"), record("/etc/absent", error="ENOENT"), {"phase": "end", "tampering": "x"}, {}):
        assert with_violations(fine, GRANTED, enforced=True) is fine


def test_in_shadow_it_says_what_would_be_refused() -> None:
    told = with_violations(record("/etc/shadow"), GRANTED, enforced=False)
    assert [(each["would_be"], each["mechanism"]) for each in told["violations"]] == [("true", "none")]


def test_only_so_many_are_listed_and_the_rest_is_counted() -> None:
    told = with_violations(record(*(f"/etc/{number}" for number in range(50))), GRANTED, enforced=False)
    assert len(told["violations"]) == MAX_RECORDED
    assert told["more_violations"] == 10
