"""What every request must pass."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request

from proxy.admin_api.auth import ListenerName
from proxy.console.security import CSP, HEADERS, MAX_FORM, RefusedError, Site, check_origin, read_form

SITE = Site(ListenerName("127.0.0.1", 8090))
BEHIND = Site(ListenerName("127.0.0.1", 8090), "https://console.example.com")
FORM = "application/x-www-form-urlencoded"


def request(body: bytes = b"", **headers: str) -> Request:
    listed = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": listed}
    return Request(scope, receive)


@pytest.mark.parametrize("host", ["127.0.0.1:8090", "localhost:8090", "LocalHost:8090", "[::1]:8090"])
def test_hosts_of_the_console(host: str) -> None:
    assert SITE.check_host(request(host=host)) == f"http://{host.lower()}"


@pytest.mark.parametrize(
    "host", ["", "evil.example:8090", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8090.evil", "console.example.com", "x@y"]
)
def test_other_hosts_are_refused(host: str) -> None:
    with pytest.raises(RefusedError) as refused:
        SITE.check_host(request(host=host))
    assert refused.value.status == 421
    with pytest.raises(RefusedError):
        SITE.check_host(request())


def test_two_hosts_are_none() -> None:
    twice = request(host="127.0.0.1:8090")
    twice.scope["headers"].append((b"host", b"127.0.0.1:8090"))
    with pytest.raises(RefusedError):
        SITE.check_host(twice)


def test_behind_a_tls_server_the_cookie_is_for_tls() -> None:
    assert BEHIND.check_host(request(host="Console.Example.Com")) == "https://console.example.com"
    assert BEHIND.check_host(request(host="127.0.0.1:8090")) == "http://127.0.0.1:8090"
    assert BEHIND.secure
    assert BEHIND.cookie.startswith("__Host-")
    assert not SITE.secure


@pytest.mark.parametrize(
    "origin", ["null", "http://127.0.0.1:8091", "https://127.0.0.1:8090", "http://127.0.0.1:8090.evil", ""]
)
def test_another_origin_is_refused(origin: str) -> None:
    with pytest.raises(RefusedError):
        check_origin(request(origin=origin), "http://127.0.0.1:8090")


def test_no_origin_is_refused() -> None:
    with pytest.raises(RefusedError):
        check_origin(request(), "http://127.0.0.1:8090")
    check_origin(request(origin="http://127.0.0.1:8090"), "http://127.0.0.1:8090")


async def test_a_form_is_read() -> None:
    form = await read_form(request(b"a=1&b=%C3%A9+x&c=", content_type=f"{FORM}; charset=utf-8"))
    assert form == {"a": "1", "b": "é x", "c": ""}
    assert await read_form(request(b"", content_type=FORM)) == {}


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"a=1&a=2", FORM, 400),
        (b"a=%FF", FORM, 400),
        (b"\xff", FORM, 400),
        (b"nonsense", FORM, 400),
        (b"&".join(b"a%d=1" % n for n in range(101)), FORM, 400),
        (b"a=" + b"x" * MAX_FORM, FORM, 413),
        (b'{"a": 1}', "application/json", 415),
        (b"a=1", "text/plain", 415),
        (b"a=1", "multipart/form-data; boundary=x", 415),
        (b"a=1", "", 415),
    ],
)
async def test_what_is_no_form_is_refused(body: bytes, kind: str, status: int) -> None:
    with pytest.raises(RefusedError) as refused:
        await read_form(request(body, content_type=kind))
    assert refused.value.status == status


def test_the_page_policy_has_nothing_inline_and_nothing_from_elsewhere() -> None:
    rules = dict(rule.split(" ", 1) for rule in CSP.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in CSP
    assert "http" not in CSP
    assert "no-referrer" not in HEADERS["Referrer-Policy"]
