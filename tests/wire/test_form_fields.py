"""Calls in the fields of forms, multipart bodies and queries."""

from __future__ import annotations

import time

import pytest

from proxy.wire.form_fields import field_texts, find_in_form, find_in_query

FORM = ["application/x-www-form-urlencoded"]
CALLS = {
    "Express": b"jsonrpc=2.0&id=1&method=tools/call&params[name]=danger",
    "encoded": b"%6dethod=%74ools%2Fcall&params%5Bname%5D=danger",
    "an array": b"method[]=tools/call&params[name]=danger",
    "an array of messages": b"0[method]=tools/call&0[params][name]=danger",
    "brackets first": b"[method]=tools/call&[params][name]=danger",
    "dots": b"method=tools/call&params.name=danger",
    "semicolons": b"x=1;method=tools/call;params[name]=danger",
    "blanks": b"+method=+tools/call&params[name]=danger",
    "capitals": b"METHOD=Tools/Call",
    "NUL": b"method%00x=tools/call",
    "many blanks": b"a=b&" + b"+" * 500 + b"method=tools/call",
    "many encoded blanks": b"%20" * 500 + b"method=tools/call",
    "many brackets": b"[" * 500 + b"method=tools/call",
    "much after NUL": b"method%00" + b"x" * 500 + b"=tools/call",
    "JSON around it": b'{"x":"&method=tools/call&params[name]=danger&"}',
    "a ping": b"jsonrpc=2.0&method=ping",
}


@pytest.mark.parametrize("body", CALLS.values(), ids=CALLS)
def test_a_call_in_a_form_is_found(body: bytes) -> None:
    assert find_in_form(body, FORM)


def test_a_form_is_known_by_its_type_or_by_its_start() -> None:
    body = CALLS["Express"]
    assert find_in_form(body, [])
    assert find_in_form(body, ["text/plain"])
    assert not find_in_form(CALLS["JSON around it"], ["application/json"])


def part(name: str, value: str, more: str = "") -> bytes:
    return f"--x\r\nContent-Disposition: form-data; {name}\r\n{more}\r\n{value}\r\n".encode()


PARTS = {
    "plain": part('name="method"', "tools/call"),
    "no quotes": part("name=method", "tools/call"),
    "escaped": part('name="meth\\od"', "tools/call"),
    "encoded": part("name*=utf-8''meth%6fd", "tools/call"),
    "continued": part('name*0="met"; name*1="hod"', "tools/call"),
    "folded": part('x=1;\r\n name="method"', "tools/call"),
    "base64": part('name="method"', "dG9vbHMvY2FsbA==", "Content-Transfer-Encoding: base64\r\n"),
    "quoted-printable": part('name="method"', "tools=2Fcall"),
    "another header": part('name="method"', "tools/call", "Content-Type: text/plain\r\n"),
    "single quotes": part("name='method'", "tools/call"),
    "a long disposition": part(f'x="{"a" * 5000}"; name="method"', "tools/call"),
    "many headers": part('name="method"', "tools/call", "X-A: b\r\n" * 100),
    "a long header": part('name="method"', "tools/call", f"X-A: {'b' * 5000}\r\n"),
    "in brackets": part('name="method[0]"', "tools/call"),
}


@pytest.mark.parametrize("first", PARTS.values(), ids=PARTS)
def test_a_call_in_a_multipart_body_is_found(first: bytes) -> None:
    body = first + part('name="params[name]"', "danger") + b"--x--\r\n"
    assert find_in_form(body, ["multipart/form-data; boundary=x"])
    assert find_in_form(body, ["text/plain"])


@pytest.mark.parametrize(
    "target",
    [
        "/mcp?method=tools/call&params[name]=danger",
        "/mcp?x=1&params%5Bname%5D=danger&%6dethod=tools%2fcall",
        "/?jsonrpc=2.0&method=ping",
    ],
)
def test_a_call_in_a_query_is_found(target: str) -> None:
    assert find_in_query(target, with_body=False)


def test_a_method_in_the_query_counts_with_a_body() -> None:
    assert find_in_query("/mcp?method=tools/call", with_body=True)
    assert not find_in_query("/docs?method=tools/call", with_body=False)


@pytest.mark.parametrize(
    "first",
    [
        part('name="payload"', "{}", "X-A: b\r\n" * 100),
        part('name="payload"; filename=""', "{}"),
        part('name="payload"; x="filename=1"', "{}"),
        part('filename; name="payload"', "{}"),
    ],
)
def test_what_some_server_takes_for_a_field_is_read(first: bytes) -> None:
    assert b"{}" in (field_texts(first + b"--x--\r\n", ["multipart/form-data; boundary=x"]) or [])


@pytest.mark.parametrize("name", ['filename="a.json"', "filename=a.json", "filename*=utf-8''a.json"])
def test_a_file_is_no_field(name: str) -> None:
    body = part(f'name="file"; {name}', "{}") + b"--x--\r\n"
    assert field_texts(body, ["multipart/form-data; boundary=x"]) == []


OTHER = [
    b"grant_type=client_credentials&scope=tools%2Fcall",
    b"method=card&params[amount]=5",
    b"method=resources",
    b"q=method=tools/call",
    b"",
    part('name="file"; filename="a.json"', '{"method":"tools/call"}') + b"--x--\r\n",
]


@pytest.mark.parametrize("body", OTHER)
def test_other_forms_are_ordinary(body: bytes) -> None:
    assert not find_in_form(body, FORM)
    assert not find_in_form(body, ["multipart/form-data; boundary=x"])


@pytest.mark.parametrize(
    "unit",
    [
        b"=tools",
        b"a=b&",
        b"method=tools/",
        b"content-disposition:\n\n",
        b"content-disposition: name=",
        b"\ncontent-disposition: x",
        b"=+",
        b"?",
        b"?method%00",
        b"\ncontent-disposition: form-data; name=a; name='b\n\n",
    ],
)
def test_a_long_body_costs_one_pass(unit: bytes) -> None:
    body = unit * ((1 << 22) // len(unit))
    start = time.process_time()
    find_in_form(body, FORM)
    find_in_form(body, ["multipart/form-data"])
    assert time.process_time() - start < 4
