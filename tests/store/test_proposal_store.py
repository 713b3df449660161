"""What a store of proposals promises, on SQLite and on Postgres alike."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import multiprocessing
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.proposals import Baseline, Commit, Consumed, Proposal, State
from proxy.errors import StoreUnavailableError
from proxy.store.open_store import open_store
from proxy.store.proposal_store import Proposals, call_key
from tests.support.store_fixtures import patient_store
from tests.support.timeouts import PATIENCE

NOW = 1_763_000_000.25
Where = tuple[str | None, Path]


def proposal(name: str = "p1", state: State = State.PENDING, **changes: Any) -> Proposal:
    plain = Proposal(
        proposal_id=name,
        server="bank.example:443",
        tool="transfer_funds",
        principal="agent",
        arguments_hash="sha256:aa",
        arguments={"to": "DE…", "amount": 10},
        rule="payments",
        policy_version="v1",
        approval="human",
        state=state,
        nonce=f"nonce-{name}",
        created_at=NOW,
        expires_at=NOW + 3600,
    )
    return dataclasses.replace(plain, **changes)


def commit(name: str = "p1", attempt: str = "call-1", **changes: Any) -> Commit:
    plain = Commit(proposal_id=name, nonce=f"nonce-{name}", attempt_id=attempt, at=NOW + 1, expires_at=NOW + 300)
    return dataclasses.replace(plain, **changes)


async def committed(store: Proposals, name: str = "p1", **changes: Any) -> None:
    await store.propose(proposal(name, State.PROPOSED, arguments_hash=name), NOW)
    assert await store.consume(commit(name, **changes)) is Consumed.OURS


FULL = proposal(
    state=State.BLOCKED,
    approval="auto",
    token_seconds=12.5,
    composite_score=0.625,
    signals={"output_instability": 0.1, "numeric_variance": 1.0},
    absent={"prompt_drift": "no baseline"},
    reason="low_integrity",
    call_id="call-0",
)


class TestProposing:
    @pytest.mark.parametrize("kept", [proposal(), FULL, proposal(state=State.PROPOSED)], ids=lambda p: p.state)
    async def test_what_is_proposed_is_given_back_and_kept(self, store: Proposals, kept: Proposal) -> None:
        assert await store.propose(kept, NOW) == kept
        assert await store.proposal("p1") == kept

    async def test_those_that_wait_for_people_are_counted(self, store: Proposals) -> None:
        assert await store.waiting(0.0) == 0
        first = await store.propose(proposal(), 0.0)
        await store.propose(proposal("p2", State.PROPOSED, tool="other"), 0.0)
        assert await store.waiting(first.expires_at - 1) == 1
        assert await store.waiting(first.expires_at) == 0

    async def test_a_proposal_that_is_not_there_is_none(self, store: Proposals) -> None:
        assert await store.proposal("p1") is None
        assert await store.proposal("\0") is None
        assert await store.awaited("s", "t", "a", "h", NOW) is None

    @pytest.mark.parametrize("state", [State.PENDING, State.APPROVED, State.REJECTED])
    async def test_the_same_again_finds_the_one_that_is_awaited(self, store: Proposals, state: State) -> None:
        await store.propose(proposal(), NOW)
        if state != State.PENDING:
            await store.decide("p1", state, operator="o", reason="r", now=NOW, expires_at=NOW + 60)
        found = await store.propose(proposal("p2"), NOW + 1)
        assert (found.proposal_id, found.state) == ("p1", state)
        assert await store.proposal("p2") is None
        call = ("bank.example:443", "transfer_funds", "agent", "sha256:aa")
        assert await store.awaited(*call, NOW + 1) == found

    @pytest.mark.parametrize("field", ["server", "tool", "principal", "arguments_hash"])
    async def test_another_call_is_another_proposal(self, store: Proposals, field: str) -> None:
        await store.propose(proposal(), NOW)
        other = proposal("p2", **{field: "another"})
        assert await store.propose(other, NOW) == other
        assert len(await store.proposals([State.PENDING])) == 2

    @pytest.mark.parametrize("state", [State.PENDING, State.APPROVED, State.REJECTED])
    async def test_one_that_has_expired_is_awaited_no_more(self, store: Proposals, state: State) -> None:
        await store.propose(proposal(), NOW)
        if state != State.PENDING:
            await store.decide("p1", state, operator="o", reason="r", now=NOW, expires_at=NOW + 3600)
        call = ("bank.example:443", "transfer_funds", "agent", "sha256:aa")
        assert await store.awaited(*call, NOW + 3600) is None
        assert await store.awaited(*call, NOW + 3599.9) is not None
        again = proposal("p2", expires_at=NOW + 9000)
        assert await store.propose(again, NOW + 3600) == again
        assert (await store.awaited(*call, NOW + 3601)) == again

    @pytest.mark.parametrize("state", [State.PROPOSED, State.BLOCKED])
    async def test_only_a_pending_one_looks_for_another(self, store: Proposals, state: State) -> None:
        for name in ("p1", "p2"):
            assert (await store.propose(proposal(name, state), NOW)).proposal_id == name
        assert (await store.propose(proposal("p3"), NOW)).proposal_id == "p3"
        assert (await store.propose(proposal("p4", state), NOW)).proposal_id == "p4"

    async def test_one_that_was_committed_is_awaited_no_more(self, store: Proposals) -> None:
        await store.propose(proposal(), NOW)
        await store.decide("p1", State.APPROVED, operator="o", reason="", now=NOW, expires_at=NOW + 60)
        assert await store.consume(commit()) is Consumed.OURS
        assert (await store.propose(proposal("p2"), NOW + 2)).proposal_id == "p2"

    async def test_the_same_proposal_twice_is_kept_once(self, store: Proposals) -> None:
        for _ in range(2):
            assert (await store.propose(proposal(state=State.PROPOSED), NOW)).proposal_id == "p1"
        assert len(await store.proposals()) == 1

    async def test_a_nonce_belongs_to_one_proposal(self, store: Proposals) -> None:
        await store.propose(proposal("p1", State.PROPOSED, nonce="n"), NOW)
        with pytest.raises(StoreUnavailableError, match="p2"):
            await store.propose(proposal("p2", State.PROPOSED, nonce="n"), NOW)

    async def test_however_many_propose_at_once_one_waits(self, store: Proposals, where: Where) -> None:
        other = patient_store(*where)
        try:
            found = await asyncio.gather(
                *((store if number % 2 else other).propose(proposal(f"p{number}"), NOW) for number in range(32))
            )
        finally:
            await other.close()
        assert len({p.proposal_id for p in found}) == 1
        assert [p.proposal_id for p in await store.proposals()] == [found[0].proposal_id]

    async def test_the_newest_come_first_and_as_many_as_asked(self, store: Proposals) -> None:
        for number in range(5):
            state = State.PROPOSED if number % 2 else State.BLOCKED
            await store.propose(proposal(f"p{number}", state, created_at=NOW + number), NOW)
        assert [p.proposal_id for p in await store.proposals()] == ["p4", "p3", "p2", "p1", "p0"]
        assert [p.proposal_id for p in await store.proposals(limit=2)] == ["p4", "p3"]
        assert [p.proposal_id for p in await store.proposals([State.PROPOSED])] == ["p3", "p1"]
        assert len(await store.proposals([State.PROPOSED, State.BLOCKED, State.PROPOSED])) == 5
        assert await store.proposals([State.COMMITTED]) == []


class TestDeciding:
    @pytest.mark.parametrize("state", [State.APPROVED, State.REJECTED])
    async def test_a_pending_proposal_is_moved_with_who_why_and_when(self, store: Proposals, state: State) -> None:
        await store.propose(proposal(), NOW)
        moved = await store.decide("p1", state, operator="olga", reason="fine", now=NOW + 5, expires_at=NOW + 65)
        assert moved == proposal(
            state=state,
            operator="olga",
            operator_reason="fine",
            operator_at=NOW + 5,
            expires_at=NOW + 65,
            approvals=int(state is State.APPROVED),
        )
        assert await store.proposal("p1") == moved

    async def test_an_approved_one_can_still_be_rejected_and_not_approved_twice(self, store: Proposals) -> None:
        await store.propose(proposal(), NOW)
        how: dict[str, Any] = {"operator": "o", "reason": "", "now": NOW, "expires_at": NOW + 60}
        assert await store.decide("p1", State.APPROVED, **how) is not None
        assert await store.decide("p1", State.APPROVED, **how) is None
        rejected = await store.decide("p1", State.REJECTED, **how)
        assert rejected is not None
        assert rejected.state is State.REJECTED
        assert await store.decide("p1", State.APPROVED, **how) is None
        assert await store.consume(commit()) is Consumed.UNKNOWN

    @pytest.mark.parametrize("state", [State.PROPOSED, State.BLOCKED])
    async def test_one_that_does_not_wait_is_left_as_it_is(self, store: Proposals, state: State) -> None:
        await store.propose(proposal(state=state), NOW)
        for decided in (State.APPROVED, State.REJECTED):
            assert await store.decide("p1", decided, operator="o", reason="", now=NOW, expires_at=NOW) is None
        assert await store.proposal("p1") == proposal(state=state)

    @pytest.mark.parametrize("name", ["p1", "gone"])
    async def test_one_that_expired_or_is_not_there_cannot_be_decided(self, store: Proposals, name: str) -> None:
        await store.propose(proposal(), NOW)
        late = NOW + 3600
        assert await store.decide(name, State.APPROVED, operator="o", reason="", now=late, expires_at=late + 1) is None
        assert await store.proposal("p1") == proposal()

    async def test_a_committed_one_cannot_be_rejected(self, store: Proposals) -> None:
        await committed(store)
        assert await store.decide("p1", State.REJECTED, operator="o", reason="", now=NOW, expires_at=NOW) is None

    @pytest.mark.parametrize("state", sorted(set(State) - {State.APPROVED, State.REJECTED}))
    async def test_an_operator_approves_or_rejects_and_nothing_else(self, store: Proposals, state: State) -> None:
        await store.propose(proposal(), NOW)
        with pytest.raises(ValueError, match=state):
            await store.decide("p1", state, operator="o", reason="", now=NOW, expires_at=NOW + 60)

    async def test_of_two_operators_one_decides(self, store: Proposals) -> None:
        await store.propose(proposal(), NOW)
        how: dict[str, Any] = {"reason": "", "now": NOW, "expires_at": NOW + 60}
        decided = await asyncio.gather(*(store.decide("p1", State.APPROVED, operator=o, **how) for o in "abcdefgh"))
        (moved,) = [p for p in decided if p is not None]
        assert await store.proposal("p1") == moved


class TestSeveralPeople:
    HOW: dict[str, Any] = {"reason": "r", "now": NOW + 1, "expires_at": NOW + 9000}  # noqa: RUF012

    async def test_it_is_approved_by_the_last_of_them_and_lives_on_only_then(self, store: Proposals) -> None:
        await store.propose(proposal(people=2), NOW)
        first = await store.decide("p1", State.APPROVED, operator="olga", **self.HOW)
        assert first is not None
        assert (first.state, first.approvals, first.expires_at) == (State.PENDING, 1, NOW + 3600)
        assert await store.consume(commit()) is Consumed.UNKNOWN
        assert await store.approved_call("bank.example:443", "transfer_funds") is None
        second = await store.decide("p1", State.APPROVED, operator="pia", **self.HOW)
        assert second is not None
        assert (second.state, second.approvals, second.expires_at) == (State.APPROVED, 2, NOW + 9000)
        assert [one.operator for one in await store.approvals("p1")] == ["olga", "pia"]
        assert await store.consume(commit()) is Consumed.OURS

    async def test_nobody_counts_twice(self, store: Proposals) -> None:
        await store.propose(proposal(people=2), NOW)
        decided = await asyncio.gather(
            *(store.decide("p1", State.APPROVED, operator="olga", **self.HOW) for _ in range(8))
        )
        assert sum(one is not None for one in decided) == 1
        found = await store.proposal("p1")
        assert found is not None
        assert (found.state, found.approvals) == (State.PENDING, 1)

    async def test_of_many_at_once_as_many_count_as_are_needed(self, store: Proposals) -> None:
        await store.propose(proposal(people=3), NOW)
        decided = await asyncio.gather(
            *(store.decide("p1", State.APPROVED, operator=name, **self.HOW) for name in "abcdefgh")
        )
        assert sorted(one.approvals for one in decided if one is not None) == [1, 2, 3]
        assert len(await store.approvals("p1")) == 3

    async def test_a_rejection_ends_it(self, store: Proposals) -> None:
        await store.propose(proposal(people=2), NOW)
        await store.decide("p1", State.APPROVED, operator="olga", **self.HOW)
        assert await store.decide("p1", State.REJECTED, operator="pia", **self.HOW) is not None
        assert await store.decide("p1", State.APPROVED, operator="rita", **self.HOW) is None
        assert [one.operator for one in await store.approvals("p1")] == ["olga"]

    async def test_the_last_approved_call_of_a_tool_is_kept_when_its_proposal_is_swept(self, store: Proposals) -> None:
        for name in ("p1", "p2"):
            await store.propose(proposal(name, arguments_hash=name, arguments={"n": name, "odd": "\0"}), NOW)
            await store.decide(name, State.APPROVED, operator="olga", **self.HOW)
        await store.sweep(NOW + 99_999, 1)
        assert await store.proposal("p2") is None
        assert await store.approvals("p2") == []
        last = await store.approved_call("bank.example:443", "transfer_funds")
        assert last is not None
        assert (last.proposal_id, last.arguments, last.operator) == ("p2", {"n": "p2", "odd": "\0"}, "olga")
        assert await store.approved_call("bank.example:443", "other") is None

    async def test_used_nonces_can_be_asked_for(self, store: Proposals) -> None:
        await committed(store, token_id="t1")
        question = "SELECT nonce, token_id, expires_at, proposal_id, tool_name, consumed_at, outcome FROM nonces"
        ((nonce, token_id, expires_at, name, tool, consumed_at, outcome),) = await store.database.fetch(question)
        assert (nonce, token_id, name, tool, outcome) == ("nonce-p1", "t1", "p1", "transfer_funds", None)
        assert (float(expires_at), float(consumed_at)) == (NOW + 300, NOW + 1)


class TestConsuming:
    async def test_a_nonce_is_consumed_once_and_its_proposal_committed(self, store: Proposals) -> None:
        await store.propose(proposal(state=State.PROPOSED), NOW)
        assert await store.commit("nonce-p1") is None
        assert await store.consume(commit()) is Consumed.OURS
        assert await store.commit("nonce-p1") == commit()
        assert await store.proposal("p1") == proposal(state=State.COMMITTED)
        assert await store.consume(commit(attempt="call-2")) is Consumed.REPLAY
        assert await store.commit("nonce-p1") == commit()

    async def test_the_same_attempt_may_ask_again(self, store: Proposals) -> None:
        await committed(store)
        assert await store.consume(commit()) is Consumed.OURS
        assert (await store.commit("nonce-p1")) == commit()

    @pytest.mark.parametrize("state", [State.PENDING, State.BLOCKED])
    async def test_a_proposal_that_may_not_be_committed_is_not(self, store: Proposals, state: State) -> None:
        await store.propose(proposal(state=state), NOW)
        assert await store.consume(commit()) is Consumed.UNKNOWN
        assert await store.commit("nonce-p1") is None
        assert await store.proposal("p1") == proposal(state=state)

    async def test_an_expired_or_rejected_one_is_unknown(self, store: Proposals) -> None:
        await store.propose(proposal(state=State.PROPOSED), NOW)
        await store.sweep(NOW + 3600, 1000)
        assert await store.consume(commit()) is Consumed.UNKNOWN
        assert await store.consume(commit("gone")) is Consumed.UNKNOWN

    async def test_the_nonce_must_be_the_proposals_own(self, store: Proposals) -> None:
        await store.propose(proposal(state=State.PROPOSED), NOW)
        assert await store.consume(commit(nonce="another")) is Consumed.UNKNOWN
        assert await store.commit("another") is None
        assert await store.consume(commit()) is Consumed.OURS

    async def test_a_consumed_nonce_has_the_last_word(self, store: Proposals) -> None:
        """Even where somebody put the proposal's state back by hand."""
        await committed(store)
        await store.database.execute("UPDATE proposals SET state = 'approved' WHERE proposal_id = $1", "p1")
        assert await store.consume(commit(attempt="call-2")) is Consumed.REPLAY
        found = await store.proposal("p1")
        assert found is not None
        assert found.state is State.APPROVED
        assert (await store.commit("nonce-p1")) == commit()

    def test_of_many_consumers_in_two_processes_one_has_it(self, where: Where) -> None:
        names = [f"p{number}" for number in range(4)]
        asyncio.run(_keep(where, names))
        context = multiprocessing.get_context("spawn")
        ready, results = context.Barrier(2), context.Queue()
        workers = [context.Process(target=_consume_many, args=(where, names, n, ready, results)) for n in (1, 2)]
        for worker in workers:
            worker.start()
        told = [Counter(dict(results.get(timeout=60))) for _ in workers]
        for worker in workers:
            worker.join(60)
            assert worker.exitcode == 0
        assert sum(told, Counter()) == {"ours": 4, "replay": 4 * 63}


class TestEnding:
    async def test_the_owner_says_once_how_it_ended(self, store: Proposals) -> None:
        await committed(store)
        assert not await store.end("nonce-p1", "call-2", "done", NOW + 2)
        assert not await store.end("gone", "call-1", "done", NOW + 2)
        assert await store.end("nonce-p1", "call-1", "done", NOW + 2)
        assert not await store.end("nonce-p1", "call-1", "error", NOW + 3)
        assert await store.commit("nonce-p1") == commit(outcome="done", ended_at=NOW + 2)

    async def test_an_attempt_goes_on_once_for_each_time_input_is_required(self, store: Proposals) -> None:
        await committed(store)
        assert not await store.resume("nonce-p1", "call-2", "q")
        for number in (2, 3):
            assert await store.end("nonce-p1", f"call-{number - 1}", "input_required", NOW + number, "q")
            assert await store.resume("nonce-p1", f"call-{number}", "q")
            assert not await store.resume("nonce-p1", f"call-{number}", "q")
            assert await store.commit("nonce-p1") == commit(attempt=f"call-{number}", attempts=number)
        assert not await store.end("nonce-p1", "call-1", "done", NOW + 9)
        assert await store.end("nonce-p1", "call-3", "done", NOW + 9)
        assert not await store.resume("nonce-p1", "call-4", "q")

    async def test_of_many_that_would_go_on_one_does(self, store: Proposals) -> None:
        await committed(store)
        await store.end("nonce-p1", "call-1", "input_required", NOW + 2, "q")
        assert not await store.resume("nonce-p1", "r", "another question")
        resumed = await asyncio.gather(*(store.resume("nonce-p1", f"r{number}", "q") for number in range(16)))
        assert sum(resumed) == 1

    @pytest.mark.parametrize("outcome", ["done", "tool_error", "error", "task", "unknown", "not_forwarded"])
    async def test_nothing_goes_on_from_another_end(self, store: Proposals, outcome: str) -> None:
        await committed(store)
        assert await store.end("nonce-p1", "call-1", outcome, NOW + 2)
        assert not await store.resume("nonce-p1", "call-2", "q")
        assert await store.consume(commit(attempt="call-2")) is Consumed.REPLAY


class TestBaselines:
    async def test_a_servers_own_counts_before_that_of_every_server(self, store: Proposals) -> None:
        assert await store.baseline("a", "t") is None
        everywhere, own = Baseline("", "t", "h1", NOW, "olga"), Baseline("a", "t", "h2", NOW)
        await store.set_baseline(everywhere)
        assert await store.baseline("a", "t") == everywhere
        await store.set_baseline(own)
        assert await store.baseline("a", "t") == own
        assert await store.baseline("b", "t") == everywhere
        assert await store.baseline("a", "other") is None

    async def test_the_last_one_set_stands(self, store: Proposals) -> None:
        await store.set_baseline(Baseline("a", "t", "h1", NOW))
        await store.set_baseline(Baseline("a", "t", "h2", NOW + 1, "me"))
        assert await store.baselines() == [Baseline("a", "t", "h2", NOW + 1, "me")]

    async def test_all_are_given_by_server_and_tool(self, store: Proposals) -> None:
        pairs = [("b", "t"), ("", "z"), ("a", "Z"), ("a", "a"), ("B", "t"), ("é", "t"), ("_", "t")]
        for server, tool in pairs:
            await store.set_baseline(Baseline(server, tool, "h", NOW))
        assert [(b.server, b.tool) for b in await store.baselines()] == sorted(pairs)

    async def test_one_can_be_forgotten(self, store: Proposals) -> None:
        await store.set_baseline(Baseline("a", "t", "h", NOW))
        assert not await store.remove_baseline("", "t")
        assert await store.remove_baseline("a", "t")
        assert not await store.remove_baseline("a", "t")
        assert await store.baselines() == []


class TestSweeping:
    @pytest.mark.parametrize(
        ("state", "swept"),
        [
            (State.PROPOSED, State.EXPIRED),
            (State.PENDING, State.EXPIRED),
            (State.BLOCKED, State.BLOCKED),
        ],
    )
    async def test_what_has_expired_is_marked(self, store: Proposals, state: State, swept: State) -> None:
        await store.propose(proposal(state=state), NOW)
        assert await store.sweep(NOW + 3599, 100) == 0
        assert await store.proposal("p1") == proposal(state=state)
        assert await store.sweep(NOW + 3600, 100) == 0
        assert await store.proposal("p1") == proposal(state=swept)

    @pytest.mark.parametrize(("state", "swept"), [(State.APPROVED, State.EXPIRED), (State.REJECTED, State.REJECTED)])
    async def test_what_an_operator_rejected_stays_so(self, store: Proposals, state: State, swept: State) -> None:
        await store.propose(proposal(), NOW)
        await store.decide("p1", state, operator="o", reason="", now=NOW, expires_at=NOW + 60)
        await store.sweep(NOW + 60, 100)
        found = await store.proposal("p1")
        assert found is not None
        assert (found.state, found.operator) == (swept, "o")
        assert (await store.propose(proposal("p2"), NOW + 61)).proposal_id == "p2"

    async def test_what_expired_longer_ago_than_the_grace_is_deleted(self, store: Proposals) -> None:
        await store.propose(proposal(), NOW)
        assert await store.sweep(NOW + 3700, 100) == 0
        assert await store.sweep(NOW + 3700.5, 100) == 1
        assert await store.proposals() == []

    async def test_a_nonce_outlives_its_token_by_the_grace(self, store: Proposals) -> None:
        await store.propose(proposal(state=State.PROPOSED, expires_at=NOW + 10), NOW)
        await store.consume(commit())
        await store.end("nonce-p1", "call-1", "done", NOW + 2)
        assert await store.sweep(NOW + 400, 100) == 0
        assert await store.consume(commit(attempt="call-2")) is Consumed.REPLAY
        assert await store.sweep(NOW + 400.5, 100) == 2
        assert await store.commit("nonce-p1") is None
        assert await store.consume(commit(attempt="call-2")) is Consumed.UNKNOWN

    async def test_a_commit_whose_outcome_is_not_known_is_kept_with_its_proposal(self, store: Proposals) -> None:
        await committed(store)
        assert await store.sweep(NOW + 1e6, 100) == 0
        assert await store.commit("nonce-p1") == commit()
        assert await store.proposal("p1") is not None
        await store.end("nonce-p1", "call-1", "unknown", NOW + 1e6)
        assert await store.sweep(NOW + 1e6, 100) == 2

    async def test_many_are_swept_by_and_by(self, store: Proposals, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("proxy.store.proposal_store.SWEEP_ROWS", 3)
        for number in range(7):
            await store.propose(proposal(f"p{number}", State.PROPOSED), NOW)
        assert await store.sweep(NOW + 9999, 100) == 7

    async def test_sweeps_and_commits_at_once_break_nothing(self, store: Proposals, where: Where) -> None:
        other = patient_store(*where)
        for number in range(12):
            await store.propose(proposal(f"p{number}", State.PROPOSED, expires_at=NOW), NOW)
        try:
            consumed = [store.consume(commit(f"p{number}")) for number in range(12)]
            outcomes = await asyncio.gather(*consumed, *(other.sweep(NOW + 10, 5) for _ in range(6)))
        finally:
            await other.close()
        ours = sum(outcome is Consumed.OURS for outcome in outcomes[:12])
        assert len(await store.proposals([State.COMMITTED])) == ours
        assert len(await store.proposals()) == ours


ODD = [
    "",
    "\0",
    "a\0b",
    "\x01",
    '\x01"x"',
    "\ud800",
    "é\U0001f600\u202e",
    "x" * 5000,
    "'; DROP TABLE x; --",
    '\\"',
]


class TestOddValues:
    @pytest.mark.parametrize("odd", ODD, ids=ascii)
    async def test_any_text_comes_back_as_it_was(self, store: Proposals, odd: str) -> None:
        names = {"server": odd, "tool": odd, "principal": odd, "rule": odd, "call_id": odd, "reason": odd}
        kept = proposal(arguments={"a": [odd, {odd: None}]}, absent={odd: odd}, **names)
        assert await store.propose(kept, NOW) == kept
        assert (await store.propose(dataclasses.replace(kept, proposal_id="p2", nonce="n2"), NOW)) == kept
        assert await store.awaited(odd, odd, odd, "sha256:aa", NOW) == kept
        decided = await store.decide("p1", State.APPROVED, operator=odd, reason=odd, now=NOW, expires_at=NOW + 9)
        assert decided is not None
        assert (decided.operator, decided.operator_reason) == (odd, odd)

    async def test_no_two_texts_are_taken_for_one(self, store: Proposals) -> None:
        for number, odd in enumerate(ODD):
            kept = proposal(f"p{number}", tool=odd)
            assert await store.propose(kept, NOW) == kept
        assert len(await store.proposals()) == len(ODD)

    @pytest.mark.parametrize("odd", [text for text in ODD if len(text) < 1000], ids=ascii)
    async def test_any_name_may_have_a_baseline(self, store: Proposals, odd: str) -> None:
        await store.set_baseline(Baseline("s", odd, "h", NOW, odd))
        assert await store.baseline("s", odd) == Baseline("s", odd, "h", NOW, odd)
        assert await store.remove_baseline("s", odd)

    @pytest.mark.parametrize(
        "arguments",
        [None, True, 0, -0.5, 1e300, 10**19, "x", [], {}, [1, [2, {"a": None}]], {"b": 1, "a": "\u0000\ud800é"}],
        ids=ascii,
    )
    async def test_masked_arguments_come_back_as_they_were(self, store: Proposals, arguments: Any) -> None:
        await store.propose(proposal(arguments=arguments), NOW)
        found = await store.proposal("p1")
        assert found is not None
        assert json.dumps(found.arguments) == json.dumps(arguments)

    @pytest.mark.parametrize("seconds", [0.0, 1.000001, 1_763_000_000, 1_763_000_000.123457, 4_000_000_000.5])
    async def test_times_are_kept_to_the_microsecond(self, store: Proposals, seconds: float) -> None:
        await store.propose(proposal(created_at=seconds, expires_at=seconds + 0.000001), seconds)
        found = await store.proposal("p1")
        assert found is not None
        assert found.created_at == pytest.approx(seconds, abs=1e-6, rel=0)
        assert found.expires_at == pytest.approx(seconds + 0.000001, abs=1e-6, rel=0)

    async def test_what_is_no_json_is_refused(self, store: Proposals) -> None:
        with pytest.raises(StoreUnavailableError, match="JSON"):
            await store.propose(proposal(arguments=float("nan")), NOW)
        assert await store.proposals() == []


class TestClosing:
    async def test_a_closed_store_refuses(self, store: Proposals) -> None:
        await store.propose(proposal(), NOW)
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailableError, match="closed"):
            await store.proposal("p1")

    async def test_one_that_was_never_used_can_be_closed(self, where: Where) -> None:
        await open_store(*where).close()

    async def test_what_one_store_keeps_another_finds(self, store: Proposals, where: Where) -> None:
        await store.propose(proposal(), NOW)
        other = patient_store(*where)
        assert await other.proposal("p1") == proposal()
        await other.close()

    async def test_a_caller_that_gives_up_harms_nobody(self, store: Proposals) -> None:
        await store.propose(proposal(state=State.PROPOSED), NOW)
        for number in range(5):
            waiting = asyncio.create_task(store.consume(commit(attempt=f"call-{number}")))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert await store.consume(commit(attempt="last")) in (Consumed.OURS, Consumed.REPLAY)
        found = await store.commit("nonce-p1")
        assert found is not None


async def _keep(where: Where, names: list[str]) -> None:
    store = patient_store(*where)
    for name in names:
        await store.propose(proposal(name, State.PROPOSED), NOW)
    await store.close()


def _consume_many(where: Where, names: list[str], worker: int, ready: Any, results: Any) -> None:
    """Let 32 consumers go for each nonce at once."""

    async def run() -> Counter[str]:
        store = patient_store(*where)
        await store.proposal("warm")
        ready.wait(PATIENCE)
        attempts = [store.consume(commit(name, f"{worker}-{number}")) for name in names for number in range(32)]
        outcomes = await asyncio.gather(*attempts)
        await store.close()
        return Counter(map(str, outcomes))

    results.put(dict(asyncio.run(run())))


SHORT = st.text(st.sampled_from('\x00\x01\ud800"a\\'), max_size=4)


@given(st.tuples(SHORT, SHORT, SHORT, SHORT), st.tuples(SHORT, SHORT, SHORT, SHORT))
def test_no_two_calls_have_one_key(one: tuple[str, str, str, str], other: tuple[str, str, str, str]) -> None:
    assert (call_key(*one) == call_key(*other)) is (one == other)
