"""Operators halt and resume over the API: whoever may, with a reason, recorded, and without the store too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from proxy.admin_api.client import RemoteHalts
from proxy.admin_api.halts import HaltControl
from proxy.admin_api.server import AdminApiServer
from proxy.core.approvals import Operator, Role
from proxy.core.halts import Halt, HaltList
from proxy.core.model import AuditEvent
from proxy.errors import AuditUnavailableError, ReviewError, StoreUnavailableError
from proxy.identity.token_file import OperatorTokens
from proxy.store.halt_file import HaltFile
from proxy.store.halt_store import Halts
from proxy.store.sqlite import SqliteDatabase
from tests.support.proposal_fixture import ReviewFixture

OLGA, VERA = Operator("olga"), Operator("vera", Role.VIEWER)


class World:
    def __init__(self, folder: Path) -> None:
        self.database = SqliteDatabase(folder / "store.db", in_thread=False)
        self.store, self.file = Halts(self.database), HaltFile(folder)
        self.events: list[AuditEvent] = []
        self.fail: Exception | None = None
        self.control = HaltControl(self.store, self.file, self)

    async def record(self, event: AuditEvent) -> None:
        if self.fail is not None:
            raise self.fail
        self.events.append(event)

    def record_later(self, event: AuditEvent) -> None:
        self.events.append(event)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_halt_is_in_force_stored_and_recorded_and_so_is_its_end(world: World) -> None:
    made = await world.control.halt(OLGA, "odd mails ", agent="bot", cut=True)
    assert (made["scope"], made["shared"], made["cut"], made["reason"]) == ("agent bot", True, True, "odd mails")
    (halt,) = world.file.in_force()
    assert (await world.store.read()).halts == (halt,)
    assert [one["halt_id"] for one in world.control.in_force()] == [made["halt_id"]]
    await world.control.resume(OLGA, "fixed", [made["halt_id"]])
    assert world.file.in_force() == (await world.store.read()).halts == ()
    told = [(event.kind, event.agent, event.detail["operator"], event.detail["why"]) for event in world.events]
    assert told == [("halted", "bot", "olga", "odd mails"), ("resumed", "bot", "olga", "fixed")]


REFUSED: list[tuple[Operator, dict[str, Any], str]] = [
    (VERA, {"reason": "x"}, "role_required"),
    (OLGA, {"reason": "  "}, "reason_required"),
    (OLGA, {"reason": "x" * 1001}, "bad_reason"),
    (OLGA, {"reason": "x", "agent": " "}, "bad_name"),
    (OLGA, {"reason": "x", "tool": "t" * 301}, "bad_name"),
]


@pytest.mark.parametrize(("operator", "asked", "code"), REFUSED)
async def test_who_may_not_or_says_too_little_halts_nothing(
    world: World, operator: Operator, asked: dict[str, Any], code: str
) -> None:
    with pytest.raises(ReviewError) as refused:
        await world.control.halt(operator, **asked)
    assert refused.value.code == code
    assert world.file.in_force() == ()


async def test_a_halt_needs_neither_the_store_nor_the_log(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(_: Sequence[Halt]) -> HaltList:
        raise StoreUnavailableError("away")

    monkeypatch.setattr(world.store, "add", away)
    world.fail = AuditUnavailableError("full")
    made = await world.control.halt(OLGA, "now")
    assert made["shared"] is False
    assert [halt.scope for halt in world.file.in_force()] == ["everything"]


async def test_to_resume_needs_both(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await world.control.halt(OLGA, "now")

    async def away(_: Sequence[str]) -> HaltList:
        raise StoreUnavailableError("away")

    monkeypatch.setattr(world.store, "remove", away)
    with pytest.raises(StoreUnavailableError):
        await world.control.resume(OLGA, "over", [made["halt_id"]])
    world.fail = AuditUnavailableError("full")
    with pytest.raises(AuditUnavailableError):
        await world.control.resume(OLGA, "over", [made["halt_id"]])
    with pytest.raises(ReviewError, match="no halt 'gone'"):
        await world.control.resume(OLGA, "over", ["gone"])
    with pytest.raises(ReviewError, match="needs an approver"):
        await world.control.resume(VERA, "over", [made["halt_id"]])
    assert len(world.file.in_force()) == 1


async def test_a_file_made_by_hand_is_resumed_as_any_halt(world: World, tmp_path: Path) -> None:
    (tmp_path / "HALT").touch()
    await world.control.resume(OLGA, "over", ["by-hand"])
    assert not (tmp_path / "HALT").exists()


async def test_over_the_api(world: World, tmp_path: Path) -> None:
    tokens = OperatorTokens(tmp_path)
    server = AdminApiServer(ReviewFixture().review, tokens, world, tmp_path, halts=world.control)
    server.start()
    button = RemoteHalts(server.path, tokens.add("olga"))
    made = await button.halt("why", agent="bot", server=None, tool="t*", cut=False)
    assert (made["operator"], made["scope"]) == ("olga", "agent bot, tool t*")
    assert [one["halt_id"] for one in await button.in_force()] == [made["halt_id"]]
    (ended,) = await button.resume("over", [made["halt_id"]])
    assert ended["halt_id"] == made["halt_id"]
    with pytest.raises(ReviewError, match="no halt"):
        await button.resume("over", [made["halt_id"]])
    for body in ({"reason": "x", "cut": "yes"}, {"reason": "x", "agent": 5}, {"reason": "x", "more": 1}):
        with pytest.raises(ReviewError) as refused:
            await button._request("POST", "/halts", body)
        assert refused.value.code == "bad_request"
    await server.stop()


async def test_an_api_without_a_stop_button_has_none(tmp_path: Path) -> None:
    tokens, fixture = OperatorTokens(tmp_path), ReviewFixture()
    server = AdminApiServer(fixture.review, tokens, fixture, tmp_path)
    server.start()
    with pytest.raises(ReviewError, match="nothing can be halted here"):
        await RemoteHalts(server.path, tokens.add("olga")).in_force()
    await server.stop()
