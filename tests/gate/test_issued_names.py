"""Task ids keep the rules of their calls, in this worker and in others, and forget in the safe direction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from proxy.core.model import Context, InFlightCall, Redaction
from proxy.errors import SharedCallsUnavailableError
from proxy.gate.issued_names import IssuedNames
from proxy.store.shared_calls import SharedCalls, open_shared_calls
from tests.support.gate_fixture import ALLOW, CONTEXT, MASK, World, call

OTHER = Redaction("cards", ("pii.card",), frozenset({"result"}))


async def made_by(*redactions: Redaction, context: Context = CONTEXT) -> InFlightCall:
    world = World(decision=replace(ALLOW, redactions=redactions))
    return (await world.forward(call(), context=context)).in_flight


async def test_a_task_has_the_redactions_of_its_call_on_its_own_server_alone() -> None:
    names = IssuedNames()
    names.add_task(await made_by(MASK), "t")
    assert names.task(CONTEXT, "t") == (MASK,)
    assert names.task(replace(CONTEXT, session="another"), "t") == (MASK,)
    assert names.task(replace(CONTEXT, server="elsewhere"), "t") is None
    assert names.task(CONTEXT, "u") is None
    names.add_task(await made_by(), "u")
    assert names.task(CONTEXT, "u") == ()


async def test_an_id_that_is_given_again_loses_no_rule() -> None:
    names = IssuedNames()
    names.add_task(await made_by(MASK), "t")
    names.add_task(await made_by(OTHER), "t")
    assert names.task(CONTEXT, "t") == (MASK, OTHER)


async def test_past_the_bound_the_oldest_are_forgotten() -> None:
    names, in_flight = IssuedNames(limit=2), await made_by(MASK)
    for name in "abc":
        names.add_task(in_flight, name)
    assert [names.task(CONTEXT, name) for name in "abc"] == [None, (MASK,), (MASK,)]


async def test_other_workers_know_of_tasks_and_of_opaque_values(tmp_path: Path) -> None:
    folder = open_shared_calls(tmp_path)
    mine, theirs = SharedCalls(folder), SharedCalls(folder)
    try:
        here, there = IssuedNames(mine), IssuedNames(theirs)
        in_flight = await made_by(MASK, OTHER)
        here.add_task(in_flight, "t")
        here.add_opaque(in_flight, "state")
        assert there.task(CONTEXT, "t") == (MASK, OTHER)
        assert there.is_issued(CONTEXT, "state")
        assert not there.is_issued(CONTEXT, "t"), "a task's id is not a value that may hold anything"
        assert there.task(CONTEXT, "state") is None
    finally:
        mine.close()
        theirs.close()


async def test_no_call_of_a_client_can_stand_in_for_a_task(tmp_path: Path) -> None:
    folder = open_shared_calls(tmp_path)
    shared = SharedCalls(folder)
    try:
        lax = await made_by(context=replace(CONTEXT, session="", transport="sse"))
        shared.post(lax)
        assert IssuedNames(shared).task(CONTEXT, str(lax.message.id)) is None
    finally:
        shared.close()


class Broken:
    def post(self, *_: object) -> None:
        raise SharedCallsUnavailableError("gone")

    find = post


async def test_without_the_shared_table_what_others_know_is_unknown() -> None:
    names = IssuedNames(Broken())  # type: ignore[arg-type]
    names.add_task(await made_by(MASK), "t")
    assert names.task(CONTEXT, "t") == (MASK,)
    assert names.task(CONTEXT, "u") is None


@pytest.mark.parametrize("name", ["\ud800", "x" * 100_000, ""])
async def test_any_name_is_a_name(name: str) -> None:
    names = IssuedNames()
    names.add_task(await made_by(MASK), name)
    assert names.task(CONTEXT, name) == (MASK,)
