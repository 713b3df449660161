"""Who may come in."""

from __future__ import annotations

import asyncio
import time

import pytest

from proxy.admin_api import auth
from proxy.admin_api.auth import ListenerName, OperatorAuth
from proxy.core.approvals import Operator, Role
from proxy.errors import CredentialError
from tests.admin_api.conftest import Served
from tests.support.timeouts import PATIENCE

BOTH = pytest.mark.parametrize("via", ["unix", "tcp"])


@BOTH
async def test_nobody_comes_in_without_an_operators_token(via: str, served: Served) -> None:
    token, agent = served.token, served.agent_token
    async with served.client(via) as http:
        for wrong in ("", "Bearer", f"Basic {token}", token, f"Bearer {agent}", f"Bearer {token} x", f"Bearer,{token}"):
            http.headers["authorization"] = wrong
            for method, path in (("GET", "/proposals"), ("POST", "/proposals/x/approve"), ("GET", "/nothing")):
                answer = await http.request(method, path)
                assert (answer.status_code, answer.json()["error"]["reason"]) == (401, "operator_auth"), wrong
                assert answer.headers["www-authenticate"] == "Bearer"
        del http.headers["authorization"]
        assert (await http.get("/proposals")).status_code == 401
    assert set(served.world.order) == {"record_later"}


@BOTH
async def test_an_operator_who_was_revoked_is_refused_at_once(via: str, served: Served) -> None:
    async with served.client(via) as http:
        assert (await http.get("/proposals")).status_code == 200
        served.tokens.revoke("alice")
        assert (await http.get("/proposals")).status_code == 401


async def test_two_tokens_are_none(served: Served) -> None:
    async with served.client() as http:
        wrong = [("Authorization", f"Bearer {served.token}"), ("Authorization", "Bearer x")]
        request = http.build_request("GET", "/proposals")
        request.headers = type(request.headers)([("Host", "x"), *wrong])
        assert (await http.send(request)).status_code == 401


@BOTH
async def test_a_wrong_token_is_logged_and_recorded_and_never_spelt(
    via: str, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = f"{served.token[:-1]}_"
    async with served.client(via) as http:
        for authorization in (f"Bearer {wrong}", f"Bearer {served.agent_token}", "Bearer something", ""):
            await http.get("/proposals", headers={"Authorization": authorization})
    told = [event.detail for event in served.world.events]
    assert [event.kind for event in served.world.events] == ["operator_refused"] * 4
    assert [detail["presented"] for detail in told] == [
        "an operator's token that is not valid",
        "an agent's token",
        "something else",
        "nothing",
    ]
    assert {(detail["via"], detail["client"]) for detail in told} == {(via, "127.0.0.1" if via == "tcp" else None)}
    logged = capsys.readouterr().out
    assert logged.count("operator token refused") == 4
    for secret in (wrong, served.agent_token, served.token):
        assert secret not in logged
        assert secret not in str(told)


async def test_wrong_tokens_wait_for_one_another_and_right_ones_for_none(served: Served) -> None:
    def scope(token: str) -> dict:
        return {"type": "http", "headers": [(b"authorization", f"Bearer {token}".encode())]}

    def wrong(guard: OperatorAuth) -> list[asyncio.Task[Operator]]:
        return [asyncio.create_task(guard.authenticate(scope("x"))) for _ in range(3)]

    guard = OperatorAuth(served.tokens, served.world, wrong_token_seconds=2 * PATIENCE)
    waiting = wrong(guard)
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        assert await guard.authenticate(scope(served.token)) == Operator("alice", Role.APPROVER)
    for one in waiting:
        assert one.cancel(), "it did not wait"
    await asyncio.gather(*waiting, return_exceptions=True)
    began, guard = time.monotonic(), OperatorAuth(served.tokens, served.world, wrong_token_seconds=0.2)
    told = await asyncio.gather(*wrong(guard), return_exceptions=True)
    assert all(isinstance(one, auth.ApiError) for one in told)
    assert time.monotonic() - began >= 0.6


@BOTH
async def test_operators_that_cannot_be_read_let_nobody_in(via: str, served: Served) -> None:
    served.tokens.path.write_text("{")
    async with served.client(via) as http:
        answer = await http.get("/proposals")
    assert (answer.status_code, answer.json()["error"]["reason"]) == (503, "operators_unavailable")
    assert served.world.order == []


async def test_over_tcp_a_name_of_somebody_elses_is_refused_before_the_token_is_looked_at(served: Served) -> None:
    async with served.client("tcp") as http:
        for host in ("evil.example", f"evil.example:{served.port}", "127.0.0.1:1", "", f"a@b:{served.port}"):
            answer = await http.get("/proposals", headers={"Host": host})
            assert (answer.status_code, answer.json()["error"]["reason"]) == (421, "wrong_host"), host
    assert served.world.order == []


@pytest.mark.parametrize(
    ("listener", "header", "fits"),
    [
        (ListenerName("127.0.0.1", 9000), "127.0.0.1:9000", True),
        (ListenerName("127.0.0.1", 9000), "LOCALHOST:9000", True),
        (ListenerName("127.0.0.1", 9000), "[::1]:9000", True),
        (ListenerName("0.0.0.0", 9000), "192.168.1.7:9000", True),
        (ListenerName("console.corp", 9000), "Console.Corp:9000", True),
        (ListenerName("console.corp", 80), "console.corp", True),
        (ListenerName("console.corp", 9000), "console.corp", False),
        (ListenerName("127.0.0.1", 9000), "127.0.0.1.evil.example:9000", False),
        (ListenerName("127.0.0.1", 9000), "evil.example:9000", False),
        (ListenerName("127.0.0.1", 9000), "localhost:9001", False),
        (ListenerName("127.0.0.1", 9000), "localhost:99999999", False),
        (ListenerName("127.0.0.1", 9000), "2130706433:9000", False),
        (ListenerName("127.0.0.1", 9000), "localhost:9000/", False),
        (ListenerName("127.0.0.1", 9000), "[localhost]:9000", False),
    ],
)
def test_a_host_header_means_a_listener_or_not(listener: ListenerName, header: str, fits: bool) -> None:
    assert listener.fits(header) is fits


class _Verifier:
    async def operator(self, token: str) -> Operator:
        if token != "a.b.c":
            raise CredentialError("token_signature", "its signature is wrong")
        return Operator("alice", Role.ADMIN, frozenset({"okta:alice/*"}))


async def test_an_issuers_token_counts_with_the_lower_of_two_roles(served: Served) -> None:
    def scope(token: str) -> dict:
        return {"type": "http", "headers": [(b"authorization", f"Bearer {token}".encode())]}

    guard = OperatorAuth(served.tokens, served.world, wrong_token_seconds=0, verifier=_Verifier())  # type: ignore[arg-type]
    operator = await guard.authenticate(scope("a.b.c"))
    own = served.tokens.named("alice")
    assert own is not None
    assert (operator.name, operator.role, operator.runs("okta:alice/bot")) == ("alice", own.role, True)
    for wrong in ("a.b.d", "a.b", "a.b.c.d"):
        with pytest.raises(auth.ApiError):
            await guard.authenticate(scope(wrong))
    with pytest.raises(auth.ApiError):
        await OperatorAuth(served.tokens, served.world, wrong_token_seconds=0).authenticate(scope("a.b.c"))
