from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.trace import observation_log
from proxy.trace.attribute import AttributedObservation, Attribution
from proxy.trace.capability import Capability, Observation
from proxy.trace.observation_log import ObservationLog

ALONE = Attribution("call", ("a",))


def seen(path: str = "/x", whose: Attribution = ALONE, **fields: Any) -> AttributedObservation:
    what = {"capability": Capability.FS_READ, "action": "open", "pid": 1, "time": 2.0, "line": "the line", **fields}
    return AttributedObservation(Observation(path=path, **what), whose)


def page(*told: AttributedObservation, name: str = "a") -> dict[str, Any]:
    book = ObservationLog()
    for each in told:
        book.take(each)
    shown = book.close(name)
    assert shown is not None
    json.dumps(shown)
    return shown


def test_the_same_thing_is_told_once_with_a_count() -> None:
    (entry,) = page(seen(), seen(), seen())["observations"]
    assert entry == {
        "capability": "fs.read",
        "action": "open",
        "path": "/x",
        "count": 3,
        "pid": 1,
        "time": 2.0,
        "evidence": "the line",
    }


def test_a_failure_is_another_thing_than_a_success() -> None:
    assert len(page(seen(), seen(error="EACCES"))["observations"]) == 2


def test_files_that_were_looked_for_in_vain_are_counted() -> None:
    shown = page(seen(), seen("/y", error="ENOENT"), seen("/z", error="ENOENT"))
    assert shown["missing_files"] == 2
    assert len(shown["observations"]) == 1


def test_many_files_do_not_crowd_out_one_connection() -> None:
    files = [seen(f"/{number}") for number in range(1000)]
    sent = seen("", capability=Capability.NET_CONNECT, action="connect", peer="1.2.3.4:5")
    shown = page(*files, sent)
    assert len(shown["observations"]) == observation_log.MAX_OF_KIND + 1
    assert shown["more"] == {"fs.read": 1000 - observation_log.MAX_OF_KIND}
    assert shown["observations"][-1]["peer"] == "1.2.3.4:5"


def test_what_is_not_sure_is_told_with_its_candidates() -> None:
    (entry,) = page(seen(whose=Attribution("call", ("a", "b"), 0.7, "thread")))["observations"]
    assert (entry["confidence"], entry["how"], entry["candidates"]) == (0.7, "thread", ["a", "b"])


def test_what_came_after_the_answer_says_so() -> None:
    (entry,) = page(seen(whose=Attribution("call", ("a",), 1.0, "process", late=True)))["observations"]
    assert entry["late"] is True
    assert "candidates" not in entry


def test_what_belongs_to_no_call_has_its_phase() -> None:
    assert page(seen(whose=Attribution("startup")), name="startup")["phase"] == "startup"


def test_pages_are_bounded_and_what_is_dropped_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation_log, "MAX_RECORDS", 2)
    book = ObservationLog()
    for call in "abcd":
        book.take(seen(whose=Attribution("call", (call,))))
    assert book.names() == ["a", "b"]
    assert book.dropped == 2


def test_a_page_is_given_once() -> None:
    book = ObservationLog()
    book.take(seen())
    assert book.names(before=2.0) == []
    assert book.names(before=2.1) == ["a"]
    assert book.close("a") is not None
    assert book.close("a") is None


def test_long_lines_and_long_commands_are_cut() -> None:
    (entry,) = page(seen(line="x" * 10_000, argv=("w",) * 1000))["observations"]
    assert len(entry["evidence"]) == observation_log.MAX_EVIDENCE
    assert len(entry["argv"]) == observation_log.MAX_WORDS
