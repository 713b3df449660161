"""Asking a real service: whatever is not a clear yes in time refuses."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from proxy.core.external import Ask, Asked, ExternalAnswer
from proxy.core.model import Call, Context, Principal
from proxy.external import client
from proxy.external.client import Services
from proxy.external.settings import ExternalSettings
from tests.support.decision_service import DecisionService, start_service

ASK = Ask("r", "opa")


def services(service: DecisionService, clock: Any = None, **changes: Any) -> Services:
    given = {"name": "opa", "type": "opa", "url": f"{service.url}/v1/data/interlock/allow", "timeout_seconds": 10}
    made = ExternalSettings.model_validate({"services": [given | changes]})
    return Services(made, clock) if clock is not None else Services(made)


def asked(tool: str = "t", **arguments: Any) -> Asked:
    return Asked(Call("tools/call", "s", "bot", tool, arguments), Context(Principal("bot"), "s"), "id", arguments)


async def answer(made: Services, what: Asked | None = None) -> ExternalAnswer:
    try:
        return (await made.ask([ASK], what or asked()))[ASK]
    finally:
        await made.close()


async def test_a_yes_is_a_yes_and_connections_are_used_again() -> None:
    with start_service() as service:
        made = services(service)
        for number in range(5):
            assert (await made.ask([ASK], asked(n=number)))[ASK].allows
        await made.close()
        assert len(service.peers) == 1
        assert set(service.paths) == {"/v1/data/interlock/allow"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"decide": lambda _: {"result": False}}, "external_denied"),
        ({"decide": lambda _: {}}, "external_denied"),
        ({"status": 500}, "external_unavailable"),
        ({"status": 404}, "external_unavailable"),
        ({"status": 204, "raw": b""}, "external_answer"),
        ({"status": 201}, "external_answer"),
        ({"status": 302, "headers": {"Location": "/v1/data/other"}}, "external_answer"),
        ({"status": 307, "headers": {"Location": "http://127.0.0.1:1/"}}, "external_answer"),
        ({"raw": b""}, "external_answer"),
        ({"raw": b'{"result":true'}, "external_answer"),
        ({"raw": b'{"result":false,"result":true}'}, "external_answer"),
        ({"raw": b'{"result":true}' + b" " * client.MAX_ANSWER}, "external_answer"),
        ({"raw": b"[" * 60_000}, "external_answer"),
        ({"raw": b"\xff\xfe"}, "external_answer"),
        ({"headers": {"Content-Encoding": "gzip"}}, "external_answer"),
    ],
)
async def test_anything_else_refuses(change: dict[str, Any], reason: str) -> None:
    with start_service() as service:
        for name, value in change.items():
            setattr(service, name, value)
        assert (await answer(services(service))).reason == reason
        assert len(service.asked) == 1


async def test_no_answer_in_time_refuses_and_waiting_for_a_turn_counts() -> None:
    with start_service() as service:
        service.held = threading.Event()
        made = services(service, timeout_seconds=0.2, concurrency=1)
        found = await asyncio.gather(*(made.ask([ASK], asked(n=number)) for number in range(3)))
        assert [one[ASK].reason for one in found] == ["external_timeout"] * 3
        assert len(service.asked) <= 2
        await made.close()


async def test_a_service_that_is_gone_or_unknown_refuses() -> None:
    with start_service() as service:
        made = services(service)
    assert (await answer(made)).reason == "external_unavailable"
    other = Ask("r", "nobody")
    assert (await Services(None).ask([other], asked()))[other].reason == "external_unavailable"


async def test_what_breaks_inside_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with start_service() as service:
        monkeypatch.setattr(client.shapes, "question", lambda *_: {"unfit": object()})
        assert (await answer(services(service))).reason == "external_unavailable"


async def test_an_answer_is_cached_for_the_same_question_alone_and_not_for_long() -> None:
    now = [0.0]
    with start_service() as service:
        made = services(service, lambda: now[0], cache_seconds=5)
        for what, cached in ((asked(n=1), False), (asked(n=1), True), (asked(n=2), False), (asked("u", n=1), False)):
            assert (await made.ask([ASK], what))[ASK].cached is cached
        now[0] = 5.0
        assert not (await made.ask([ASK], asked(n=1)))[ASK].cached
        assert len(service.asked) == 4
        service.status = 500
        now[0] = 11.0
        for _ in range(2):
            assert (await made.ask([ASK], asked(n=1)))[ASK].reason == "external_unavailable"
        assert len(service.asked) == 6
        await made.close()


async def test_what_is_cached_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_CACHED", 2)
    with start_service() as service:
        made = services(service, cache_seconds=60)
        for number in (1, 2, 3, 1):
            await made.ask([ASK], asked(n=number))
        assert len(service.asked) == 4
        await made.close()


async def test_a_token_is_sent_where_there_is_one(tmp_path: Any) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    with start_service() as service:
        assert (await answer(services(service, token_file=str(tmp_path / "token")))).allows
        made = services(service, token_file=str(tmp_path / "token"))
        (tmp_path / "token").unlink()
        assert (await answer(made)).reason == "external_unavailable"


CEDAR = {"name": "opa", "type": "cedar"}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        # As cedar-agent's README has them, and as Verified Permissions documents its IsAuthorized.
        ({"decision": "Allow", "diagnostics": {"reason": ["admins-policy"], "errors": []}}, None),
        ({"decision": "Deny", "diagnostics": {"reason": [], "errors": []}}, "external_denied"),
        ({"decision": "ALLOW", "determiningPolicies": [{"policyId": "p"}], "errors": []}, None),
        ({"decision": "DENY", "determiningPolicies": [], "errors": []}, "external_denied"),
        ({"decision": "ALLOW", "errors": [{"errorDescription": "e"}]}, "external_answer"),
        ({"result": True}, "external_answer"),
    ],
)
async def test_cedar_is_asked_over_http_as_well(said: dict[str, Any], reason: str | None) -> None:
    with start_service() as service:
        service.decide = lambda _: said
        found = await answer(services(service, **CEDAR, url=f"{service.url}/v1/is_authorized"), asked(a=1.5, b=None))
        assert (found.reason, service.paths) == (reason, ["/v1/is_authorized"])
        (told,) = service.asked
        assert (told["principal"], told["action"]) == ('Agent::"bot"', 'Action::"tools/call"')
        assert told["resource"] == 'Tool::"s/t"'


Raw = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def raw_service(speak: Raw) -> AsyncIterator[DecisionService]:
    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        yield DecisionService(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")


async def test_an_answer_that_drips_ends_with_the_time_that_the_settings_give() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n")
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)
        writer.close()

    async with raw_service(drip) as service:
        began = asyncio.get_running_loop().time()
        assert (await answer(services(service, timeout_seconds=0.2))).reason == "external_timeout"
        assert asyncio.get_running_loop().time() - began < 5


async def test_a_connection_that_the_service_closed_is_not_used_again() -> None:
    closed = asyncio.Event()

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"result":true}')
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with raw_service(once) as service:
        made = services(service)
        for number in range(3):
            assert (await made.ask([ASK], asked(n=number)))[ASK].allows
            await asyncio.wait_for(closed.wait(), 10)
            closed.clear()
        await made.close()
