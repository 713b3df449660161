"""Agents and their sessions."""

from __future__ import annotations

from proxy.console.agent_sessions import agents, sessions
from proxy.core.event import CallRecord
from tests.console.test_overview_figures import completed, decided

NOTHING: dict[str, object] = dict.fromkeys(CallRecord.__dataclass_fields__)


def call(number: int, time: float, **fields: object) -> CallRecord:
    plain: dict[str, object] = {"event_id": f"e{number}", "call_id": f"c{number}", "time": time, "decision": "allow"}
    lists: dict[str, object] = {"rules": (), "shadow_rules": (), "redactions": ()}
    return CallRecord(**(NOTHING | plain | lists | fields))  # type: ignore[arg-type]


def test_agents_are_listed_by_when_they_were_last_seen() -> None:
    events = [
        decided(1, agent="ada"),
        decided(15, agent="bob", tool="x", weight=3.0),
        decided(16, "deny", agent="bob", tool="y"),
        completed(18, 5),
        decided(3, agent=None),
        decided(99, agent="late"),
    ]
    found = agents(events, [0, 10, 20])
    assert [(one.name, one.calls, one.denied, one.last_seen) for one in found] == [
        *(("bob", 4, 1, 16), ("(none)", 1, 0, 3), ("ada", 1, 0, 1)),
    ]
    assert found[0].slices == {"allow": [0, 3], "propose": [0, 0], "deny": [0, 1]}
    assert found[0].tools == {"x", "y"}


def test_sessions_have_their_calls_in_order_with_the_pauses_between() -> None:
    calls = [call(3, 30, session="s"), call(1, 10, session="s"), call(2, 20, decision="deny"), call(4, 35, session="s")]
    one, other = sessions(calls)
    assert (one.id, one.first, one.last, one.denied) == ("s", 10, 35, 0)
    assert [(step.call["id"], step.pause) for step in one.steps] == [("c1", 0), ("c3", 20), ("c4", 5)]
    assert (other.id, other.denied) == ("", 1)


def test_a_session_of_one_server_is_no_session_of_another() -> None:
    assert len(sessions([call(1, 1, session="s", server="a"), call(2, 2, session="s", server="b")])) == 2
