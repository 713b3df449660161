"""What becomes of proposals and commits: outcomes, questions, failures, and the events that tell of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.core.model import Forward
from proxy.core.proposals import Commit
from proxy.errors import AuditUnavailableError, SamplerError, StoreUnavailableError
from tests.support.two_phase_fixture import ARGUMENTS, Make, World


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[World] = []

    def build(*rules: dict[str, Any], **more: Any) -> World:
        world = World(tmp_path, **({"rules": list(rules)} if rules else {}), **more)
        made.append(world)
        return world

    yield build
    for world in made:
        await world.close()


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ({}, "done"),
        ({"isError": True}, "tool_error"),
        ({"resultType": "input_required"}, "input_required"),
        ({"resultType": "task"}, "task"),
    ],
)
async def test_how_a_commit_ended_is_kept_with_it(make: Make, result: Any, outcome: str) -> None:
    world = make()
    proposed = await world.propose()
    forward = await world.commit(proposed)
    assert isinstance(forward, Forward)
    assert forward.in_flight.commit is not None
    before = await world.store.commit(forward.in_flight.commit.nonce)
    assert before is not None
    assert before.outcome is None
    await world.answer(forward, **result)
    commit = await world.store.commit(forward.in_flight.commit.nonce)
    assert commit is not None
    assert commit.outcome == outcome


async def test_a_commit_whose_answer_never_came_is_unknown(make: Make) -> None:
    world = make()
    forward = await world.commit(await world.propose())
    assert isinstance(forward, Forward)
    world.gate.responses.abandon(forward.in_flight, "upstream_error")
    await world.two_phase.settle()
    assert forward.in_flight.commit is not None
    commit = await world.store.commit(forward.in_flight.commit.nonce)
    assert commit is not None
    assert commit.outcome == "unknown"


async def test_a_commit_that_cannot_be_recorded_is_not_forwarded_and_says_so(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    world.fail = AuditUnavailableError("full")
    assert await world.commit(proposed) == "audit_unavailable"
    world.fail = None
    await world.two_phase.settle()
    found = await world.store.proposal(proposed["proposal_id"])
    assert found is not None
    commit = await world.store.commit(found.nonce)
    assert commit is not None
    assert commit.outcome == "not_forwarded"


@pytest.mark.parametrize("error", [StoreUnavailableError("away"), asyncio.CancelledError()])
async def test_a_store_that_breaks_off_after_it_used_the_token_up_leaves_it_not_forwarded(
    make: Make, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    world = make()
    proposed = await world.propose()
    consume = world.store.consume

    async def break_off(commit: Commit) -> Any:
        await consume(commit)
        raise error

    monkeypatch.setattr(world.store, "consume", break_off)
    with contextlib.suppress(asyncio.CancelledError):
        assert await world.commit(proposed) == "store_unavailable"
    await world.two_phase.settle()
    monkeypatch.undo()
    found = await world.store.proposal(proposed["proposal_id"])
    assert found is not None
    commit = await world.store.commit(found.nonce)
    assert commit is not None
    assert commit.outcome == "not_forwarded"
    assert await world.commit(proposed) == "nonce_replay"


CONTINUED = {"inputResponses": {"code": {"action": "accept"}}, "requestState": "s"}
ASKED = {"resultType": "input_required", "requestState": "s"}


async def asked(world: World, proposed: Any, **result: Any) -> None:
    """Commit, and let the server answer with a question."""
    forward = await world.commit(proposed)
    assert isinstance(forward, Forward)
    await world.answer(forward, **(ASKED | result))


async def test_a_commit_goes_on_after_input_required_with_the_same_token(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    await asked(world, proposed)
    for _ in range(2):
        forward = await world.commit(proposed, **CONTINUED)
        assert isinstance(forward, Forward)
        assert forward.message.params["inputResponses"] == CONTINUED["inputResponses"]
        await world.answer(forward, **ASKED)
    world.now += 301  # the user thought about it for longer than the token lives
    last = await world.commit(proposed, **CONTINUED)
    assert isinstance(last, Forward)
    await world.answer(last)
    assert await world.commit(proposed, **CONTINUED) == "nonce_replay"


async def test_an_answer_to_what_was_not_asked_is_no_commit(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    assert await world.commit(proposed, **CONTINUED) == "bad_proposal"
    assert isinstance(await world.commit(proposed), Forward)


@pytest.mark.parametrize("state", ["other", "", None, 7])
async def test_an_answer_to_another_question_does_not_go_on(make: Make, state: Any) -> None:
    world = make()
    proposed = await world.propose()
    await asked(world, proposed)
    assert await world.commit(proposed, **{**CONTINUED, "requestState": state}) == "nonce_replay"
    assert isinstance(await world.commit(proposed, **CONTINUED), Forward)


async def test_a_question_without_a_state_is_answered_without_one(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    await asked(world, proposed, requestState=None)
    assert await world.commit(proposed, **CONTINUED) == "nonce_replay"
    assert isinstance(await world.commit(proposed, inputResponses={"code": {}}), Forward)


async def test_a_commit_goes_on_only_with_the_same_arguments(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    forward = await world.commit(proposed)
    assert isinstance(forward, Forward)
    await world.answer(forward, **ASKED)
    assert await world.commit(proposed, {"amount": 1, "to": "eve"}, **CONTINUED) == "args_hash_mismatch"
    assert await world.commit(proposed) == "nonce_replay"


async def test_a_commit_that_was_not_asked_anything_cannot_go_on(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    forward = await world.commit(proposed)
    assert isinstance(forward, Forward)
    await world.answer(forward)
    assert await world.commit(proposed, **CONTINUED) == "nonce_replay"


async def test_of_many_that_go_on_at_once_one_does(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    forward = await world.commit(proposed)
    assert isinstance(forward, Forward)
    await world.answer(forward, **ASKED)
    outcomes = await asyncio.gather(*(world.commit(proposed, **CONTINUED) for _ in range(10)))
    assert sum(isinstance(outcome, Forward) for outcome in outcomes) == 1


class Away:
    """A store that is not there."""

    def __getattr__(self, name: str) -> Any:
        async def fail(*_: Any, **__: Any) -> Any:
            raise StoreUnavailableError("away")

        return fail


async def test_without_the_store_nothing_is_proposed_or_committed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make()
    proposed = await world.propose()
    monkeypatch.setattr(world.two_phase, "_store", Away())
    assert await world.propose() == "store_unavailable"
    assert await world.commit(proposed) == "store_unavailable"
    assert isinstance(await world.inspect("other", {}), Forward)
    monkeypatch.undo()


async def test_a_failing_step_refuses(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make()
    proposed = await world.propose()

    def fail(*_: Any) -> Any:
        raise RuntimeError("boom")

    monkeypatch.setattr(world.two_phase, "_ring", fail)
    assert await world.propose() == "internal_error"
    assert await world.commit(proposed) == "internal_error"


class Drafts:
    def __init__(self, *drafts: str, error: str = "") -> None:
        self.drafts, self.error, self.asked = drafts, error, []  # type: ignore[var-annotated]

    async def sample(self, tool: str, description: str | None, arguments: Any, prompt: str | None) -> tuple[str, ...]:
        self.asked.append((tool, description, arguments, prompt))
        if self.error:
            raise SamplerError(self.error)
        return self.drafts


async def test_drafts_come_from_the_sampler_where_the_caller_gives_none(make: Make) -> None:
    sampler = Drafts("moved 100", "moved 100")
    world = make(sampler=sampler)
    assert (await world.propose(extra={"prompt": "pay"}))["status"] == "allowed"
    assert sampler.asked == [("transfer_funds", None, ARGUMENTS, "pay")]
    await world.propose()
    assert len(sampler.asked) == 1


async def test_a_sampler_sees_no_secret(make: Make) -> None:
    sampler = Drafts("a", "a")
    token = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
    await make(sampler=sampler).propose({"note": f"use {token}"}, extra={"prompt": f"use {token}"})
    assert sampler.asked
    assert token not in repr(sampler.asked)


async def test_a_sampler_that_fails_leaves_the_signal_out_and_the_event_says_so(make: Make) -> None:
    world = make(sampler=Drafts(error="no answer from the model in 10 s"))
    assert (await world.propose(extra=None))["reason"] == "no_signals"
    (proposed,) = [event for event in world.events if event.kind == "proposed"]
    assert "no answer from the model in 10 s" in json.dumps(proposed.detail["absent"])


async def test_events_tell_the_story(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    forward = await world.commit(proposed)
    assert isinstance(forward, Forward)
    await world.answer(forward)
    await world.commit(proposed)
    assert world.kinds() == ["proposed", "decided", "committed", "decided", "completed", "decided"]
    story = [(e.kind, e.tool, e.decision, e.reason) for e in world.events if e.kind == "decided"]
    assert story == [
        ("decided", "transfer_funds", "propose", "proposal_allowed"),
        ("decided", "transfer_funds", "allow", "proposal_committed"),
        ("decided", "transfer_funds", "deny", "nonce_replay"),
    ]
    told = {event.detail.get("proposal_id") for event in world.events[:5]}
    assert told == {proposed["proposal_id"]}
    assert world.events[3].detail["phase"] == "commit"
    assert world.events[3].detail["called_as"] == "transfer_funds_commit"


async def test_no_token_is_ever_recorded(make: Make) -> None:
    world = make()
    proposed = await world.propose()
    await world.commit({**proposed, "proposal_id": "x"})
    await world.commit(proposed)
    assert proposed["commit_token"] not in repr(world.events)


async def test_secrets_are_masked_in_the_store(make: Make) -> None:
    world = make()
    token = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
    proposed = await world.propose({"note": f"use {token}"})
    kept = await world.store.proposal(proposed["proposal_id"])
    assert kept is not None
    assert token not in repr(kept)
