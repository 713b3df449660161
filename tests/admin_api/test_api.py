"""The operators' API, over its real sockets."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from proxy.admin_api import api
from proxy.core.approvals import Role
from proxy.core.proposals import State
from proxy.errors import AuditUnavailableError, StoreUnavailableError
from tests.admin_api.conftest import Served
from tests.support.proposal_fixture import NOW, new_proposal
from tests.support.timeouts import PATIENCE

ID = new_proposal().proposal_id
BOTH = pytest.mark.parametrize("via", ["unix", "tcp"])


def said(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["reason"]


@BOTH
async def test_an_operator_lists_shows_and_approves(via: str, served: Served) -> None:
    async with served.client(via) as http:
        (listed,) = (await http.get("/proposals", params={"state": "pending"})).json()["proposals"]
        shown = (await http.get(f"/proposals/{ID[:13]}")).json()
        assert shown == {**listed, "commit": None, "approved_by": [], "last_approved": None}
        assert (shown["tool"], shown["arguments"]) == ("transfer_funds", {"amount": 100, "note": "***"})
        answer = await http.post(f"/proposals/{ID}/approve", json={"reason": "looks right"})
    assert answer.status_code == 200
    assert (answer.json()["state"], answer.json()["operator"]) == ("approved", "alice")
    assert served.world.kept[ID].operator_reason == "looks right"
    assert [event.kind for event in served.world.events] == ["approved"]


@BOTH
async def test_an_operator_rejects_with_a_reason_and_not_without(via: str, served: Served) -> None:
    async with served.client(via) as http:
        assert said(await http.post(f"/proposals/{ID}/reject")) == (400, "reason_required")
        answer = await http.post(f"/proposals/{ID}/reject", json={"reason": "wrong account"})
    assert (answer.status_code, answer.json()["state"]) == (200, "rejected")


async def test_an_approval_needs_no_body(served: Served) -> None:
    async with served.client() as http:
        assert (await http.post(f"/proposals/{ID}/approve")).json()["state"] == "approved"


async def test_who_approved_is_who_held_the_token_whatever_the_body_says(served: Served) -> None:
    async with served.client() as http:
        body = {"reason": "x", "operator": "mallory"}
        assert said(await http.post(f"/proposals/{ID}/approve", json=body)) == (400, "bad_request")
    assert served.world.kept[ID].state is State.PENDING


BAD_BODIES = (
    b"{",
    b"[]",
    b'"x"',
    b"null",
    b'{"reason": 1}',
    b'{"reason": null}',
    b'{"reason": "\\ud800"}',
    b"\xff",
    b"[" * 9999,
)


@pytest.mark.parametrize("verb", ["approve", "reject"])
async def test_a_body_of_another_form_decides_nothing(verb: str, served: Served) -> None:
    async with served.client() as http:
        for body in BAD_BODIES:
            answer = await http.post(f"/proposals/{ID}/{verb}", content=body)
            assert said(answer) == (400, "bad_request"), body[:20]
    assert "decide" not in served.world.order


async def test_a_large_body_is_refused(served: Served) -> None:
    async with served.client() as http:
        answer = await http.post(f"/proposals/{ID}/approve", content=b" " * (api.MAX_BODY + 1))
    assert said(answer) == (413, "body_too_large")
    assert "decide" not in served.world.order


async def test_a_slow_body_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "BODY_SECONDS", 0.1)
    reader, writer = await asyncio.open_unix_connection(served.admin_api.path)
    head = f"POST /proposals/{ID}/approve HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.token}\r\n"
    writer.write(f"{head}Content-Length: 10\r\n\r\n{{".encode())
    async with asyncio.timeout(PATIENCE):
        assert b" 408 " in await reader.readline()
    writer.close()
    await writer.wait_closed()
    assert "decide" not in served.world.order


async def test_a_request_that_breaks_off_decides_nothing(served: Served) -> None:
    _, writer = await asyncio.open_unix_connection(served.admin_api.path)
    head = f"POST /proposals/{ID}/approve HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.token}\r\n"
    writer.write(f"{head}Content-Length: 10\r\n\r\n{{".encode())
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    async with served.client() as http:
        assert (await http.get(f"/proposals/{ID}")).json()["state"] == "pending"
    assert "decide" not in served.world.order


NOES = [
    ("GET", "/proposals/nothing-like-it", (404, "not_found")),
    ("GET", "/proposals/01890000", (409, "ambiguous_id")),
    ("GET", "/proposals/%00", (404, "not_found")),
    ("GET", "/proposals?state=odd", (400, "bad_request")),
    ("GET", "/proposals?limit=0", (400, "bad_request")),
    ("GET", "/proposals?limit=1001", (400, "bad_request")),
    ("GET", "/proposals?limit=%C2%B2", (400, "bad_request")),
    ("GET", f"/proposals?limit={'9' * 5000}", (400, "bad_request")),
    ("GET", f"/proposals/{ID}/approve", (405, "method_not_allowed")),
    ("DELETE", f"/proposals/{ID}", (405, "method_not_allowed")),
    ("OPTIONS", "/proposals", (405, "method_not_allowed")),
    ("GET", "/", (404, "not_found")),
    ("POST", "/proposals/over/approve", (410, "expired")),
    ("POST", "/proposals/done/approve", (409, "not_pending")),
]


async def test_a_no_has_its_status_and_code(served: Served) -> None:
    served.world.lay(
        new_proposal("01890000-1111"),
        new_proposal("over", expires_at=NOW - 1),
        new_proposal("done", state=State.COMMITTED),
    )
    async with served.client() as http:
        for method, path, expected in NOES:
            assert said(await http.request(method, path)) == expected, path
    assert served.world.events == []


@pytest.mark.parametrize(
    ("step", "failure", "reason"),
    [
        ("proposal", StoreUnavailableError("the store is down"), "store_unavailable"),
        ("decide", StoreUnavailableError("the store is down"), "store_unavailable"),
        ("record", AuditUnavailableError("the disk is full"), "audit_unavailable"),
    ],
)
async def test_a_part_that_is_down_is_503_and_nothing_is_decided(
    step: str, failure: Exception, reason: str, served: Served
) -> None:
    served.world.fail[step] = failure
    async with served.client() as http:
        assert said(await http.post(f"/proposals/{ID}/approve")) == (503, reason)
    assert served.world.kept[ID].state is State.PENDING


async def test_a_failure_within_is_500_and_says_nothing_of_itself(served: Served) -> None:
    served.world.fail["proposals"] = RuntimeError("secret detail")
    async with served.client() as http:
        answer = await http.get("/proposals")
    assert said(answer) == (500, "internal_error")
    assert "secret detail" not in answer.text


@BOTH
async def test_answers_are_kept_by_nobody_and_open_to_no_web_page(via: str, served: Served) -> None:
    async with served.client(via) as http:
        answer = await http.get("/proposals", headers={"Origin": "https://evil.example"})
    assert answer.headers["cache-control"] == "no-store"
    assert not any(name.startswith("access-control-") for name in answer.headers)
    assert "server" not in answer.headers
    assert "nonce" not in json.dumps(answer.json())


async def test_each_route_is_for_its_role_and_those_above(served: Served) -> None:
    found = api.routes(api.Api(served.world.review))
    assert {(method, path): role for method, path, role, _ in found} == {
        ("GET", "/proposals"): Role.VIEWER,
        ("GET", "/proposals/{id}"): Role.VIEWER,
        ("POST", "/proposals/{id}/approve"): Role.APPROVER,
        ("POST", "/proposals/{id}/reject"): Role.APPROVER,
        ("GET", "/standing"): Role.VIEWER,
        ("POST", "/standing/{id}/revoke"): Role.APPROVER,
        ("GET", "/rule-proposals"): Role.VIEWER,
        ("GET", "/rule-proposals/{id}"): Role.VIEWER,
        ("POST", "/rule-proposals/{id}/accept"): Role.ADMIN,
        ("POST", "/rule-proposals/{id}/reject"): Role.APPROVER,
        ("GET", "/halts"): Role.VIEWER,
        ("POST", "/halts"): Role.APPROVER,
        ("POST", "/halts/{id}/resume"): Role.APPROVER,
    }
    tokens = {role: served.tokens.add(f"one-{role}", role) for role in Role}
    for role, token in tokens.items():
        async with served.client(token=token) as http:
            for method, path, needed, _ in found:
                answer = await http.request(method, path.replace("{id}", "nothing-like-it"))
                refused = answer.status_code == 403 and said(answer) == (403, "role_required")
                assert refused is not role.includes(needed), (role, path)
    assert served.world.events == []


async def test_the_next_calls_like_it_are_approved_with_it(served: Served) -> None:
    served.world.lay(new_proposal(parts={"amount": "number:aa", "note": "string:bb"}))
    async with served.client() as http:
        body = {"reason": "payday", "next": {"calls": 3, "seconds": 60, "vary": ["amount"]}}
        assert (await http.post(f"/proposals/{ID}/approve", json=body)).json()["state"] == "approved"
        (standing,) = (await http.get("/standing")).json()["standing"]
        assert (standing["remaining"], standing["vary"], standing["state"]) == (3, ["amount"], "live")
        revoked = await http.post(f"/standing/{standing['standing_id']}/revoke", json={"reason": "enough"})
        assert (revoked.json()["state"], revoked.json()["revoked_by"]) == ("revoked", "alice")


BAD_NEXT = (
    1,
    [],
    {},
    {"calls": 1},
    {"calls": True, "seconds": 60},
    {"calls": 1.5, "seconds": 60},
    {"calls": "1", "seconds": 60},
    {"calls": 1, "seconds": "60"},
    {"calls": 1, "seconds": 60, "vary": "amount"},
    {"calls": 1, "seconds": 60, "vary": [1]},
    {"calls": 1, "seconds": 60, "vary": ["\ud800"]},
    {"calls": 1, "seconds": 60, "people": 1},
)


async def test_next_calls_of_another_form_decide_nothing(served: Served) -> None:
    async with served.client() as http:
        for bad in BAD_NEXT:
            body = json.dumps({"next": bad})
            assert said(await http.post(f"/proposals/{ID}/approve", content=body)) == (400, "bad_request"), bad
        for bad in ({"calls": 0, "seconds": 60}, {"calls": 1, "seconds": 0}, {"calls": 1, "seconds": 1e9}):
            assert said(await http.post(f"/proposals/{ID}/approve", json={"next": bad})) == (400, "bad_next"), bad
    assert "decide" not in served.world.order
