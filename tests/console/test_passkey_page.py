"""Passkeys: registered by an operator in a session, and a login that nobody can replay or forge."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ec

from proxy.console import door
from proxy.errors import AuditUnavailableError
from tests.support.authenticator import PRESENT, VERIFIED, Authenticator
from tests.support.console_fixture import URL, Desk, open_desk

NAMED = "http://localhost:8090"
TICKET = "interlock-8090-passkey"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "WRONG_SECONDS", 0.0)


@pytest_asyncio.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A console that the browser opens by its name."""
    async with open_desk(tmp_path) as opened:
        opened.http.base_url = httpx2.URL(NAMED)
        opened.http.headers["origin"] = NAMED
        yield opened


async def register(desk: Desk, authenticator: Authenticator, **changes: Any) -> httpx2.Response:
    options = (await desk.post("/sign-in/passkeys/options")).json()
    credential = authenticator.create(options, changes.pop("origin", NAMED), **changes)
    return await desk.post("/sign-in/passkeys", credential=credential, label=" My\nlaptop ")


async def enrol(desk: Desk) -> Authenticator:
    """Register a passkey of ann's, and log her out."""
    authenticator = Authenticator()
    await desk.log_in()
    assert (await register(desk, authenticator)).status_code == 200
    desk.http.cookies.clear()
    return authenticator


async def ask(desk: Desk) -> Any:
    return (await desk.http.post("/login/passkey/options")).json()


async def log_in(desk: Desk, credential: str, to: str = "/calls") -> httpx2.Response:
    return await desk.http.post("/login/passkey", data={"credential": credential, "next": to})


async def test_a_passkey_logs_in_and_is_recorded(desk: Desk) -> None:
    authenticator = await enrol(desk)
    answer = await log_in(desk, authenticator.get(await ask(desk), NAMED), "/approvals")
    place = next(one.path for one in desk.http.cookies.jar if one.name == "interlock-8090")
    assert answer.json() == {"next": f"{place}approvals"}
    page = await desk.http.get("/sign-in")
    assert "My laptop" in page.text
    assert desk.sink.kinds() == ["operator_login", "passkey_added", "operator_login"]
    assert desk.sink.events[-1].detail["presented"] == "passkey"
    assert desk.console.passkeys._file.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "changes",
    [
        {"origin": "http://localhost:3000"},
        {"origin": "https://localhost:8090"},
        {"origin": "http://evil.example"},
        {"origin": URL},
        {"rp_id": "evil.example"},
        {"rp_id": "127.0.0.1"},
        {"flags": PRESENT},
        {"flags": VERIFIED},
        {"challenge": "AAAA"},
        {"type": "webauthn.get"},
        {"crossOrigin": True},
        {"topOrigin": "http://evil.example"},
    ],
)
async def test_a_passkey_of_another_page_or_without_a_person_is_not_registered(
    changes: dict[str, Any], desk: Desk
) -> None:
    await desk.log_in()
    assert (await register(desk, Authenticator(), **changes)).status_code == 403
    assert desk.console.passkeys.of("ann") == {}
    assert "passkey_added" not in desk.sink.kinds()


async def test_a_passkey_that_could_not_be_recorded_is_not_kept(desk: Desk) -> None:
    await desk.log_in()
    desk.sink.fail = AuditUnavailableError("disk full")
    assert (await register(desk, Authenticator())).status_code == 503
    assert desk.console.passkeys.of("ann") == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"origin": "http://localhost:3000"},
        {"origin": "https://localhost:8090"},
        {"origin": "http://evil.example"},
        {"origin": URL},
        {"rp_id": "evil.example"},
        {"flags": PRESENT},
        {"flags": VERIFIED},
        {"challenge": "AAAA"},
        {"type": "webauthn.create"},
        {"crossOrigin": True},
        {"crossOrigin": "true"},
        {"topOrigin": "http://evil.example"},
        {"count": 0},
        {"user_handle": "AAAA"},
        {"user_handle": None},
        {"key": ec.generate_private_key(ec.SECP256R1())},
    ],
)
async def test_a_login_of_another_page_person_or_key_is_refused_and_recorded(
    changes: dict[str, Any], desk: Desk
) -> None:
    authenticator = await enrol(desk)
    assert (await log_in(desk, authenticator.get(await ask(desk), NAMED))).status_code == 200
    desk.http.cookies.clear()
    options = await ask(desk)
    answer = await log_in(desk, authenticator.get(options, changes.pop("origin", NAMED), **changes))
    assert (answer.status_code, answer.json()["error"]["reason"]) == (403, "wrong_passkey")
    assert "interlock-8090" not in answer.cookies
    assert desk.sink.kinds()[-1] == "operator_refused"


@pytest.mark.parametrize(
    "credential",
    ["", "{", "[]", "null", "{}", '{"id": 1}', "[" * 50_000, '{"id": "é", "rawId": "é", "response": {}}', "\x00"],
)
async def test_what_is_no_credential_is_refused(credential: str, desk: Desk) -> None:
    await enrol(desk)
    await ask(desk)
    assert (await log_in(desk, credential)).status_code == 403


@pytest.mark.parametrize("part", ["clientDataJSON", "authenticatorData", "signature"])
async def test_bytes_that_make_no_sense_are_refused(part: str, desk: Desk) -> None:
    authenticator = await enrol(desk)
    for value in ("", "AAAA", 7, None, "é"):
        credential = json.loads(authenticator.get(await ask(desk), NAMED))
        credential["response"][part] = value
        assert (await log_in(desk, json.dumps(credential))).status_code == 403, value


async def test_an_answer_counts_once_and_only_in_the_browser_that_was_asked(desk: Desk) -> None:
    authenticator = await enrol(desk)
    options = await ask(desk)
    ticket = desk.http.cookies[TICKET]
    credential = authenticator.get(options, NAMED)
    desk.http.cookies.clear()
    assert (await log_in(desk, credential)).status_code == 403
    desk.http.cookies.set(TICKET, "x" * 43)
    assert (await log_in(desk, credential)).status_code == 403
    desk.http.cookies.clear()
    desk.http.cookies.set(TICKET, ticket)
    assert (await log_in(desk, credential)).status_code == 200
    desk.http.cookies.clear()
    desk.http.cookies.set(TICKET, ticket)
    assert (await log_in(desk, credential)).status_code == 403
    desk.http.cookies.clear()
    await ask(desk)
    assert (await log_in(desk, credential)).status_code == 403


async def test_a_wrong_answer_uses_the_challenge_up(desk: Desk) -> None:
    authenticator = await enrol(desk)
    options = await ask(desk)
    assert (await log_in(desk, "{}")).status_code == 403
    assert (await log_in(desk, authenticator.get(options, NAMED))).status_code == 403


async def test_a_registration_is_bound_to_its_session_and_done_once(desk: Desk) -> None:
    await desk.log_in()
    options = (await desk.post("/sign-in/passkeys/options")).json()
    credential = Authenticator().create(options, NAMED)
    desk.http.cookies.clear()
    await desk.log_in("bob")
    assert (await desk.post("/sign-in/passkeys", credential=credential)).status_code == 403
    authenticator = Authenticator()
    assert (await register(desk, authenticator)).status_code == 200
    assert (await register(desk, authenticator)).status_code == 403
    assert (await desk.http.post("/sign-in/passkeys", data={"credential": credential})).status_code == 403


async def test_a_passkey_goes_with_its_operator_and_when_it_is_removed(desk: Desk) -> None:
    authenticator = await enrol(desk)
    desk.tokens.revoke("ann")
    assert (await log_in(desk, authenticator.get(await ask(desk), NAMED))).status_code == 403
    desk.tokens.add("ann")
    assert (await log_in(desk, authenticator.get(await ask(desk), NAMED))).status_code == 403
    other = await enrol(desk)
    (key,) = desk.console.passkeys.of("ann")
    desk.http.cookies.clear()
    await desk.log_in("bob")
    assert (await desk.post("/sign-in/passkeys/remove", id=key)).status_code == 404
    desk.http.cookies.clear()
    await desk.log_in("ann")
    assert (await desk.post("/sign-in/passkeys/remove", id=key)).status_code == 303
    desk.http.cookies.clear()
    assert (await log_in(desk, other.get(await ask(desk), NAMED))).status_code == 403


async def test_an_address_has_no_passkeys_and_the_page_says_where_they_are(desk: Desk) -> None:
    desk.http.base_url = httpx2.URL(URL)
    desk.http.headers["origin"] = URL
    answer = await desk.http.post("/login/passkey/options")
    assert (answer.status_code, answer.json()["error"]["reason"]) == (400, "no_passkeys_here")
    await desk.log_in()
    assert f'href="{NAMED}/sign-in"' in (await desk.http.get("/sign-in")).text


async def test_a_localhost_that_may_lead_elsewhere_has_no_passkeys(desk: Desk) -> None:
    object.__setattr__(desk.console.site, "owns_localhost", False)
    assert (await desk.http.post("/login/passkey/options")).status_code == 400
    await desk.log_in()
    assert "console_url" in (await desk.http.get("/sign-in")).text


async def test_a_damaged_file_or_trail_lets_nobody_in(desk: Desk) -> None:
    authenticator = await enrol(desk)
    file = desk.console.passkeys._file.path
    kept = file.read_text()
    for damaged in ("{", "[]", '{"x": {}}', kept.replace('"count": 0', '"count": "0"')):
        file.write_text(damaged)
        assert (await log_in(desk, authenticator.get(await ask(desk), NAMED))).status_code == 503
    file.write_text(kept)
    desk.sink.fail = AuditUnavailableError("disk full")
    answer = await log_in(desk, authenticator.get(await ask(desk), NAMED))
    assert (answer.status_code, "interlock-8090" in answer.cookies) == (503, False)
