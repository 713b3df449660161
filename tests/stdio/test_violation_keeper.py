"""What becomes of refused acts; `test_bound_files.py` shows it with whole servers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from proxy.core.model import Context, Principal
from proxy.sandbox.profile import SandboxProfile
from proxy.sandbox.violations import Violation
from proxy.stdio.violation_keeper import MAX_RECORDED, ViolationKeeper

FOUND = Violation("fs.read", "open", "/etc/shadow", "read does not list it", "supervisor", "EACCES")
CONTEXT = Context(Principal("bot"), "files", transport="stdio")


class Recorder:
    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken
        self.events: list[tuple[Any, str, dict[str, Any]]] = []

    def act_refused(self, _context: Context, call: Any, rule: str, detail: dict[str, Any]) -> None:
        self.events.append((call.call_id if call else None, rule, detail))

    def masked(self, value: Any) -> Any:
        if self.broken:
            raise ValueError("a broken detector")
        return {"text": value["text"].replace("shadow", "***")}


def make_call(call_id: str = "1") -> Any:
    message = SimpleNamespace(method="tools/call")
    return SimpleNamespace(call_id=call_id, closed=False, barred=None, message=message)


def keep(profile: dict[str, Any], *taken: tuple[Violation, list[Any]], recorder: Recorder) -> list[str]:
    """Let a keeper take violations; return how often it ended the server."""
    ended: list[str] = []

    async def work() -> None:
        gate: Any = SimpleNamespace(recorder=recorder)
        loop = asyncio.get_running_loop()
        chosen = SandboxProfile.model_validate(profile)
        keeper = ViolationKeeper(gate, CONTEXT, chosen, lambda: ended.append("end"), loop)
        for found, calls in taken:
            await asyncio.to_thread(keeper.take, found, calls)  # as the supervisor does
        await asyncio.sleep(0)

    asyncio.run(work())
    return ended


@pytest.mark.parametrize(("then", "bars", "ends"), [("tell", False, 0), ("withhold", True, 0), ("end", True, 1)])
def test_the_profile_says_what_a_refused_act_does(then: str, bars: bool, ends: int) -> None:
    call, recorder = make_call(), Recorder()
    assert len(keep({"on_violation": then}, (FOUND, [call]), recorder=recorder)) == ends
    assert (call.barred is not None) is bars
    assert [(event[0], event[1]) for event in recorder.events] == [("1", "sandbox: read does not list it")]


def test_a_denial_says_what_was_tried_masked() -> None:
    call = make_call()
    keep({"on_violation": "withhold"}, (FOUND, [call]), recorder=Recorder())
    assert "fs.read (open) of '/etc/***' was refused" in call.barred.text
    assert (call.barred.reason, call.barred.audit_id) == ("sandbox_violation", "1")


def test_what_cannot_be_masked_is_left_out_and_withheld_all_the_same() -> None:
    call = make_call()
    keep({"on_violation": "withhold"}, (FOUND, [call]), recorder=Recorder(broken=True))
    assert call.barred is not None
    assert "shadow" not in call.barred.text


def test_several_calls_in_flight_are_all_barred_and_candidates() -> None:
    calls, recorder = [make_call("1"), make_call("2")], Recorder()
    keep({"on_violation": "withhold"}, (FOUND, calls), recorder=recorder)
    assert all(call.barred is not None for call in calls)
    assert [(event[0], event[2]["candidates"]) for event in recorder.events] == [("1", ["1", "2"]), ("2", ["1", "2"])]


def test_what_is_tried_before_any_call_is_told_and_ends_nothing_and_between_calls_it_does() -> None:
    recorder = Recorder()
    assert keep({"on_violation": "end"}, (FOUND, []), recorder=recorder) == []
    assert [(event[0], event[2]["phase"]) for event in recorder.events] == [(None, "ambient")]
    first = (FOUND._replace(target="/a"), [make_call()])
    assert len(keep({"on_violation": "end"}, first, (FOUND, []), recorder=Recorder())) == 2


def test_the_same_again_and_too_much_is_not_recorded() -> None:
    call, recorder = make_call(), Recorder()
    many = [(FOUND._replace(target=f"/{number}"), [call]) for number in range(MAX_RECORDED + 5)]
    keep({}, (FOUND, [call]), (FOUND, [call]), *many, recorder=recorder)
    assert len(recorder.events) == MAX_RECORDED


def test_in_shadow_nothing_is_withheld() -> None:
    call = make_call()
    assert keep({"on_violation": "end", "mode": "shadow"}, (FOUND, [call]), recorder=Recorder()) == []
    assert call.barred is None
