"""Cases that only some parsers read as a call: other languages' leniency, other formats, fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

from tests.bypass.shot import Builder, Case, Shot, Text

# Where no message was answered before: what is known as MCP's is refused without being read so closely.
ELSEWHERE = "/elsewhere"
FORM = "application/x-www-form-urlencoded"


def _readers() -> Iterator[Case]:
    def reader(name: str, tries: str, text: Text) -> Case:
        build: Builder = lambda shot: shot.request(text(shot), path=ELSEWHERE)  # noqa: E731
        return Case(f"reader-{name}", tries, build=build, benign="refused")

    yield reader("php-list", "PHP: an object with the key 0 is a list", lambda s: f'{{"0":{s.text()}}}')
    yield reader("php-list-two", "PHP: the keys 0 and 1", lambda s: f'{{"0":{s.ping()},"1":{s.text()}}}')
    yield reader("php-true", "PHP: true == tools/call", lambda s: s.text(method='"method":true,'))
    yield reader(
        "ruby-escapes",
        "Ruby drops unknown backslashes",
        lambda s: s.text().replace("jsonrpc", "j\\sonrpc").replace("tools/call", "tools/c\\all"),
    )
    yield reader("kotlin-bare", "kotlinx: no quotes", lambda s: s.text().replace('"', ""))
    yield reader(
        "serde-struct", "serde: a struct by position", lambda s: f'["2.0",{s.number},"tools/call",{s.params()}]'
    )
    yield reader("serde-enum", "serde: an enum", lambda s: s.text(method='"method":{"tools/call":null},'))
    yield reader(
        "node-array", "Node: an array as a property's name", lambda s: s.text(method='"method":["tools/call"],')
    )
    yield reader("cjson-method", "cJSON ends keys at NUL", lambda s: s.text(method='"method\\u0000x":"tools/call",'))
    yield reader("cjson-name", "Two names, NUL in the second key", lambda s: _second_name(s, "name\\u0000x"))
    yield Case(
        "reader-cjson-argument",
        "NUL in the key path of an argument",
        build=lambda s: s.request(s.text().replace('"path"', '"path\\u0000x"'), path=ELSEWHERE),
        call="read_file",
        benign="refused",
    )
    yield reader("gson-guard", "Gson skips )]}'", lambda s: ")]}'\n" + s.text())
    yield reader("gson-hash", "Gson skips lines that begin with #", lambda s: "# x\n# y\n" + s.text())
    yield reader("fastjson", "fastjson drops hyphens and underscores", lambda s: s.text().replace("method", "me-th_od"))
    yield reader("fastjson-name", "Two names, the second with a hyphen", lambda s: _second_name(s, "na-me"))
    yield reader("hex-escapes", "JSON5's escapes", lambda s: s.text(jsonrpc="", method='"method":"\\x74ools/call",'))
    yield reader("json5", "JSON5", _json5)
    yield reader("yaml", "YAML without brackets", _yaml)
    yield reader("hjson", "HJSON without brackets", lambda s: "# x\n" + _hjson(s))
    yield reader("line", "Garbage, then the call on a line of its own", lambda s: f"x\n{s.text()}")
    yield reader("line-in-json", "The call on a line of its own in JSON", lambda s: f'{{"x":\n{s.text()}\n}}')


def _second_name(shot: Shot, key: str) -> str:
    return shot.text(params=shot.params(name=f'"echo","{key}":{shot.name}'))


def _json5(shot: Shot) -> str:
    text = shot.text(first="/* x */", jsonrpc="", method="'method':'\\x74ools\\\n/call',")
    return text.replace('"', "'")[:-1] + ",}"


def _yaml(shot: Shot) -> str:
    arguments = json.dumps(shot.arguments)
    return (
        f'jsonrpc: "2.0"\nid: {shot.number}\nmethod: tools/call\nparams:\n'
        f"  name: {shot.tool}\n  arguments: {arguments}{shot.meta}\n"
    )


def _hjson(shot: Shot) -> str:
    return f"id: {shot.number}\nmethod: tools/call\nparams: {shot.params()}"


def _fields(shot: Shot) -> list[tuple[str, str]]:
    (key, value), *_ = shot.arguments.items()
    call = [("jsonrpc", "2.0"), ("id", str(shot.number)), ("method", "tools/call"), ("params[name]", shot.tool)]
    return [*call, (f"params[arguments][{key}]", value)]


def _form(fields: list[tuple[str, str]]) -> str:
    return "&".join(f"{quote(key)}={quote(value, safe='')}" for key, value in fields)


def _multipart(shot: Shot) -> str:
    parts = (f'--x\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in _fields(shot))
    return "".join(parts) + "--x--\r\n"


def _at(fields: list[tuple[str, str]]) -> str:
    return f"{ELSEWHERE}?{_form(fields)}"


def _retyped(shot: Shot, content_type: str, body: str | bytes) -> bytes:
    headers = [("Content-Type", content_type)]
    return shot.request(body, path=ELSEWHERE, without=["Content-Type"], headers=headers)


def _in_fields() -> Iterator[Case]:
    yield Case("fields-form", "Form fields (Express, PHP)", build=lambda s: _retyped(s, FORM, _form(_fields(s))))
    yield Case(
        "fields-form-escaped",
        "Form fields, every letter escaped",
        build=lambda s: _retyped(s, FORM, _form(_fields(s)).replace("method", "%6Dethod").replace("tools", "%74ools")),
    )
    yield Case(
        "fields-multipart",
        "Multipart fields",
        build=lambda s: _retyped(s, "multipart/form-data; boundary=x", _multipart(s)),
    )
    yield Case("fields-name", "The message as a field's name", build=lambda s: _retyped(s, FORM, "x&" + s.text()))
    yield Case(
        "fields-many",
        "The message in a field behind more than anybody reads",
        build=lambda s: _retyped(s, FORM, "a&" * 100_001 + f"payload={quote(s.text(), safe='')}"),
    )
    yield Case(
        "fields-query",
        "The fields of a GET's query (PHP's $_REQUEST)",
        build=lambda s: s.request(b"", method="GET", path=_at(_fields(s)), without=["Content-Type"]),
        limit=8.0,
    )
    yield Case(
        "fields-query-post",
        "The query's fields beside a harmless message",
        build=lambda s: s.request(s.ping(), path=_at(_fields(s))),
    )
    yield Case(
        "fields-split",
        "The method in the query, the parameters in the form",
        build=lambda s: s.request(
            _form(_fields(s)[3:]), path=_at(_fields(s)[:3]), without=["Content-Type"], headers=[("Content-Type", FORM)]
        ),
    )


def _charsets() -> Iterator[Case]:
    for name, content_type, codec in (
        ("continued", "application/json; charset*0=cp; charset*1=037", "cp037"),
        ("encoded", "application/json; charset*=us-ascii''cp037", "cp037"),
        ("text", "text/plain; charset=cp037", "cp037"),
        ("comment", "text/plain; (x) charset=cp037", "cp037"),
    ):
        yield Case(
            f"charset-{name}",
            f"Content-Type: {content_type}",
            build=lambda s, t=content_type, c=codec: _retyped(s, t, s.text().encode(c)),  # type: ignore[misc]
        )
    yield Case(
        "charset-unicode-escape",
        "text/plain; charset=unicode_escape, as aiohttp decodes it",
        build=lambda s: _retyped(s, "text/plain; charset=unicode_escape", "\\x7b" + s.text()[1:]),
    )
    yield Case(
        "charset-shift-jis",
        "A backslash that is half a character in Shift_JIS",
        build=lambda s: _retyped(
            s, "application/json; charset=shift_jis", b'{"x":"\x83\\",' + s.text().encode()[1:-1] + b',"y":"\x83\\"}'
        ),
    )


CASES: tuple[Case, ...] = (*_readers(), *_in_fields(), *_charsets())
