"""A walk along a chain, step by step."""

from __future__ import annotations

from proxy.audit.chained import Chained
from proxy.audit.checkpoints import Checkpoint
from proxy.audit.event import Entry
from proxy.audit.hash_chain import Head, link, start
from proxy.audit.walk import Problem, Signed, Walk, by_writer


def chain(count: int, writer: str = "w") -> list[Chained]:
    tip, found = start(writer).hash, []
    for seq in range(1, count + 1):
        tip = link(tip, seq, f"body {seq}")
        found.append(Chained(Entry(f"body {seq}", writer, seq, tip), f"e{seq}"))
    return found


def checkpoint(event: Chained, kind: str = "head") -> Checkpoint:
    assert event.entry.seq is not None
    return Checkpoint(kind, "w", event.entry.seq, event.entry.chain or "", "1.000000", "k")


def walked(events: list[Chained], *checkpoints: Checkpoint, head: Head | None = None) -> tuple[Walk, Problem | None]:
    walk = Walk("w", by_writer(checkpoints).get("w", Signed()), head)
    problem = next(filter(None, map(walk.take, events)), None)
    return walk, problem or walk.end()


def test_a_chain_without_checkpoints_holds_together_but_proves_nothing() -> None:
    walk, problem = walked(chain(5))
    assert (problem, walk.checked, walk.proven) == (None, 5, 0)


def test_the_last_checkpoint_says_how_far_it_is_proven() -> None:
    events = chain(5)
    walk, problem = walked(events, checkpoint(events[1]), checkpoint(events[3]))
    assert (problem, walk.proven) == (None, 4)


def test_a_rejected_event_may_be_missing_and_no_other() -> None:
    events = chain(5)
    walk, problem = walked([*events[:2], *events[3:]], checkpoint(events[2], "rejected"))
    assert (problem, walk.checked, walk.set_aside) == (None, 4, 1)
    _, problem = walked([*events[:3], *events[4:]], checkpoint(events[2], "rejected"))
    assert problem is not None
    assert (problem.seq, problem.what) == (4, "missing")


def test_a_rejected_event_at_the_end_is_not_missed() -> None:
    events = chain(3)
    _, problem = walked(events[:2], checkpoint(events[2], "rejected"))
    assert problem is None


def test_an_event_after_a_rejected_one_must_follow_from_it() -> None:
    events, other = chain(5), chain(5, "other")
    _, problem = walked([*events[:2], *other[3:]], checkpoint(events[2], "rejected"))
    assert problem is not None
    assert (problem.seq, problem.what) == (4, "altered")


def test_pruned_events_may_be_missing_in_part() -> None:
    events = chain(9)
    walk, problem = walked([events[1], events[3], *events[5:]], checkpoint(events[4], "pruned"))
    assert (problem, walk.checked) == (None, 6)


def test_a_checkpoint_of_another_history_is_a_fork() -> None:
    events, other = chain(5), chain(5, "other")
    _, problem = walked(events, checkpoint(events[4]), checkpoint(other[4]))
    assert problem is not None
    assert (problem.seq, problem.what) == (5, "forked")


def test_an_event_without_a_place_is_told() -> None:
    _, problem = walked([Chained(Entry("x", "w", None, None), "e")])
    assert problem is not None
    assert (problem.event_id, problem.what) == ("e", "unchained")


def test_the_logs_own_head_must_be_the_last_link() -> None:
    events = chain(3)
    good = Head("w", 3, events[2].entry.chain or "")
    assert walked(events, head=good)[1] is None
    _, problem = walked(events, head=Head("w", 3, "0" * 64))
    assert problem is not None
    assert (problem.seq, problem.what) == (3, "rewritten")
