"""What every request passes before a page sees it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.routing import Route

from proxy.console.security import HEADERS
from tests.support.console_fixture import Desk, open_desk

PATHS = ["/", "/calls", "/calls/x", "/stream", "/pending", "/approvals", "/nothing", "/static/../app.py", "//calls"]


@pytest.mark.parametrize("path", PATHS)
async def test_without_a_session_there_is_only_the_login(path: str, desk: Desk) -> None:
    answer = await desk.http.get(path)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login?next=")
    machine = await desk.http.get(path, headers={"accept": "application/json"})
    assert machine.status_code == 401
    assert machine.json()["error"]["reason"] == "no_session"


async def test_every_answer_carries_the_headers_that_protect_it(desk: Desk) -> None:
    answers = [await desk.http.get(path) for path in ("/login", "/calls", "/favicon.ico", "/static/x/y")]
    await desk.log_in()
    answers += [await desk.http.get(path) for path in ("/calls", "/nothing")]
    answers.append(await desk.http.post("/logout", headers={"origin": "http://evil.example"}))
    answers.append(await desk.http.get("/calls", headers={"host": "evil.example"}))
    for answer in answers:
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, answer.url
        assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8090", "127.0.0.1:8091", "console.example.com"])
async def test_a_name_of_another_site_is_refused_even_with_a_session(host: str, desk: Desk) -> None:
    await desk.log_in()
    for path in ("/calls", "/login"):
        assert (await desk.http.get(path, headers={"host": host})).status_code == 421


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
async def test_other_methods_are_refused(method: str, desk: Desk) -> None:
    await desk.log_in()
    assert (await desk.http.request(method, "/calls")).status_code == 405


def posts(desk: Desk) -> list[str]:
    every = [route for route in desk.app.routes if isinstance(route, Route) and "POST" in (route.methods or ())]
    return [re.sub(r"\{\w+\}", "x", route.path) for route in every if not route.path.startswith("/login")]


async def test_no_form_is_taken_without_the_token_of_the_session(desk: Desk) -> None:
    await desk.log_in()
    assert "/logout" in posts(desk)
    for path in posts(desk):
        for fields in ({"x": "1"}, {"csrf": ""}, {"csrf": "x" * 43}):
            answer = await desk.http.post(path, data=fields, headers={"accept": "application/json"})
            assert answer.status_code == 403, path
            assert answer.json()["error"]["reason"] == "wrong_csrf_token"


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "https://127.0.0.1:8090"])
async def test_no_form_is_taken_from_another_site_even_with_the_token(origin: str | None, desk: Desk) -> None:
    await desk.log_in()
    csrf = await desk.csrf()
    del desk.http.headers["origin"]
    headers = {} if origin is None else {"origin": origin}
    for path in [*posts(desk), "/login", "/login/passkey", "/login/passkey/options"]:
        answer = await desk.http.post(path, data={"csrf": csrf}, headers=headers)
        assert answer.status_code == 403, path


async def test_a_path_that_does_not_exist_says_so_to_operators(desk: Desk) -> None:
    await desk.log_in()
    answer = await desk.http.get("/nothing")
    assert answer.status_code == 404
    assert "There is no such page" in answer.text


async def test_a_page_that_fails_tells_nothing_of_why(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.log_in()

    def fail(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(type(desk.console.trail), "open", fail)
    answer = await desk.http.get("/calls")
    assert answer.status_code == 500
    assert "secret detail" not in answer.text


async def test_operators_that_cannot_be_read_let_nobody_in(desk: Desk) -> None:
    await desk.log_in()
    desk.tokens.path.write_text("{")
    for path in ("/calls", "/nothing"):
        assert (await desk.http.get(path)).status_code == 503


async def test_a_revoked_operator_is_out_at_once(desk: Desk) -> None:
    await desk.log_in()
    assert (await desk.http.get("/calls")).status_code == 200
    desk.tokens.revoke("ann")
    assert (await desk.http.get("/calls")).status_code == 303


async def test_two_cookies_of_the_session_are_no_way_in(desk: Desk) -> None:
    await desk.log_in()
    name, value = next(iter(desk.http.cookies.items()))
    desk.http.cookies.clear()
    assert (await desk.http.get("/calls", headers={"cookie": f"{name}={value}x"})).status_code == 303


async def test_a_session_counts_under_its_own_path_alone(desk: Desk) -> None:
    """A browser sends cookies to every port of a host, so what matters is that it sends this one to no other path."""
    await desk.log_in()
    (cookie,) = list(desk.http.cookies.jar)
    assert re.fullmatch(r"/s-[0-9a-f]{32}/", cookie.path)
    sent = {"cookie": f"{cookie.name}={cookie.value}"}
    assert (await desk.http.get(f"{cookie.path}calls", headers=sent)).status_code == 200
    desk.http.cookies.clear()
    other = "/s-" + "0" * 32
    for path in ("/calls", f"{other}/calls", f"/{cookie.path}calls", f"{cookie.path[:-1].upper()}/calls", "/", "/s-/"):
        answer = await desk.http.get(path, headers=sent)
        assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/login"), path
    answer = await desk.http.get("/pending", headers=sent | {"accept": "application/json"})
    assert answer.status_code == 401
    answer = await desk.http.post(f"{other}/logout", headers=sent, data={})
    assert answer.status_code == 401


@pytest.mark.parametrize("form", ["{other}; {own}", "{own}; {other}", "{other};{own};{other}"])
async def test_a_cookie_that_another_port_set_hides_no_session(desk: Desk, form: str) -> None:
    await desk.log_in()
    (cookie,) = list(desk.http.cookies.jar)
    sent = form.format(own=f"{cookie.name}={cookie.value}", other=f"{cookie.name}=evil")
    desk.http.cookies.clear()
    assert (await desk.http.get(f"{cookie.path}calls", headers={"cookie": sent})).status_code == 200


async def test_the_home_page_is_the_overview(desk: Desk) -> None:
    await desk.log_in()
    assert (await desk.http.get("/")).status_code == 200


async def test_what_is_not_http_is_refused(desk: Desk) -> None:
    with pytest.raises(RuntimeError, match="HTTP"):
        await desk.app({"type": "websocket", "headers": []}, None, None)  # type: ignore[arg-type]


async def test_behind_tls_the_cookie_has_the_prefix_and_is_secure(tmp_path: Path) -> None:
    async with open_desk(tmp_path, console_url="https://console.example.com") as desk:
        desk.http.headers |= {"host": "console.example.com", "origin": "https://console.example.com"}
        cookie = (await desk.log_in()).headers["set-cookie"]
    assert cookie.startswith("__Host-interlock=")
    assert {"HttpOnly", "Secure", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert "Domain" not in cookie
