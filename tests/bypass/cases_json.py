"""Cases that play with the message: its encoding, its syntax, its members."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from tests.bypass.shot import Case, Shot

type Text = Callable[[Shot], str]


def _body(name: str, tries: str, text: Text, **rest: object) -> Case:
    """Give a case that is an ordinary POST with a crafted body."""
    return Case(name, tries, build=lambda shot: shot.request(text(shot)), **rest)  # type: ignore[arg-type]


def _encoded(name: str, encoding: str, charset: str | None, bom: bytes = b"") -> Case:
    content_type = "application/json" + (f"; charset={charset}" if charset else "")
    return Case(
        name,
        f"The message in {encoding}{' with a BOM' if bom else ''}, charset {charset or 'not said'}",
        build=lambda shot: shot.retyped(content_type, bom + shot.text().encode(encoding)),
    )


def _encodings() -> Iterator[Case]:
    yield _encoded("utf8-bom", "utf-8", None, b"\xef\xbb\xbf")
    yield _encoded("utf8-bom-twice", "utf-8", None, b"\xef\xbb\xbf" * 2)
    yield _encoded("utf8-bom-charset", "utf-8", "utf-8", b"\xef\xbb\xbf")
    for width, marks in (
        ("16", (b"\xff\xfe", b"\xfe\xff")),
        ("32", (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")),
    ):
        for order, mark in zip(("le", "be"), marks, strict=True):
            encoding = f"utf-{width}-{order}"
            yield _encoded(f"utf{width}{order}", encoding, None)
            yield _encoded(f"utf{width}{order}-bom", encoding, None, mark)
            yield _encoded(f"utf{width}{order}-charset", encoding, encoding)
            yield _encoded(f"utf{width}{order}-bom-charset", encoding, f"utf-{width}", mark)
    yield Case(
        "utf7-charset",
        "The message in UTF-7 with the charset said",
        build=lambda shot: shot.retyped("application/json; charset=utf-7", shot.text().replace("{", "+AHs-").encode()),
    )
    yield Case(
        "utf7-silent",
        "The message in UTF-7 without a word",
        build=lambda shot: shot.request(shot.text().replace("{", "+AHs-").replace("tools/call", "tools+AC8-call")),
    )
    yield Case(
        "charset-lie",
        "Plain UTF-8 called UTF-16",
        build=lambda shot: shot.retyped("application/json; charset=utf-16le"),
    )
    yield Case(
        "charset-ebcdic",
        "The message in EBCDIC with its charset",
        build=lambda shot: shot.retyped("application/json; charset=cp037", shot.text().encode("cp037")),
    )
    for spelling in ("utf-8", '"UTF-8"', "utf8"):
        yield Case(
            f"charset-{spelling.strip(chr(34)).lower()}{'-quoted' if '"' in spelling else ''}",
            f"charset={spelling}",
            build=lambda shot, s=spelling: shot.retyped(f"application/json; charset={s}"),  # type: ignore[misc]
            benign="either" if spelling == "utf8" else "runs",
            answer="any" if spelling == "utf8" else "denial",
        )


def _overlong(text: str) -> bytes:
    """Write ASCII text in two bytes per character, as UTF-8 forbids."""
    return b"".join(bytes([0xC0 | ord(char) >> 6, 0x80 | ord(char) & 0x3F]) for char in text)


def _bad_utf8() -> Iterator[Case]:
    def with_bytes(name: str, tries: str, old: bytes, new: bytes) -> Case:
        return Case(
            name,
            tries,
            build=lambda shot: shot.request(shot.text().encode().replace(old, new, 1)),
        )

    yield with_bytes("utf8-invalid", "A stray 0xFF in a string", b'"jsonrpc"', b'"x":"\xff","jsonrpc"')
    yield with_bytes("utf8-truncated", "A cut-off sequence in a string", b'"jsonrpc"', b'"x":"\xe2\x82","jsonrpc"')
    yield with_bytes("utf8-surrogate-bytes", "A surrogate in UTF-8", b'"jsonrpc"', b'"x":"\xed\xa0\x80","jsonrpc"')
    yield with_bytes("utf8-too-high", "A character past U+10FFFF", b'"jsonrpc"', b'"x":"\xf5\x80\x80\x80","jsonrpc"')
    yield with_bytes("overlong-slash", "tools/call with an overlong slash", b"tools/call", b"tools\xc0\xafcall")
    yield Case(
        "overlong-name",
        "The tool's name in overlong UTF-8",
        build=lambda shot: shot.request(
            shot.text(params=shot.params(name='"@@"')).encode().replace(b"@@", _overlong(shot.tool))
        ),
    )


def _duplicates() -> Iterator[Case]:
    def dup(name: str, tries: str, text: Text, **rest: object) -> Case:
        return _body(f"dup-{name}", tries, text, **rest)

    yield dup("name-last", "Two names, ours last", lambda s: s.text(params=s.params(name=f'"echo","name":{s.name}')))
    yield dup(
        "name-first",
        "Two names, ours first",
        lambda s: s.text(params=s.params(name=f'{s.name},"name":"echo"')),
    )
    yield dup(
        "name-escaped",
        "Two names, the second key escaped",
        lambda s: s.text(params=s.params(name=f'"echo","n\\u0061me":{s.name}')),
    )
    yield dup(
        "name-escaped-first",
        "Two names, the first key escaped",
        lambda s: s.text(params=s.params(name=f'{s.name},"\\u006eame":"echo"')),
    )
    yield dup(
        "name-case",
        "Two names, one in capitals: Go reads the last of either",
        lambda s: s.text(params=s.params(name=f'"echo","NAME":{s.name}')),
    )
    yield dup("method-last", "ping, then tools/call", lambda s: s.text(first='"method":"ping",'))
    yield dup("method-first", "tools/call, then ping", lambda s: s.text(extra=',"method":"ping"'))
    yield dup("method-escaped", "ping, then an escaped method key", lambda s: s.text(first='"m\\u0065thod":"ping",'))
    yield dup("method-case", "Method: ping beside method", lambda s: s.text(first='"Method":"ping",'))
    yield dup("params-last", "Harmless params, then ours", lambda s: s.text(first='"params":{"name":"echo"},'))
    yield dup("params-first", "Ours, then harmless params", lambda s: s.text(extra=',"params":{"name":"echo"}'))
    yield dup("id", "Two ids", lambda s: s.text(id='"id":1,"id":2,'))
    yield dup("jsonrpc", "Two versions", lambda s: s.text(first='"jsonrpc":"1.0",'))
    yield dup(
        "arguments",
        "Two arguments objects",
        lambda s: s.text(params=s.params(args=f'{{"path":"/srv/x"}},"arguments":{s.args}')),
        call="read_file",
    )
    yield dup(
        "argument",
        "One argument twice, ours last",
        lambda s: s.text(params=s.params(args='{"path":"/srv/x",' + s.args[1:])),
        call="read_file",
    )
    yield dup(
        "argument-first",
        "One argument twice, ours first",
        lambda s: s.text(params=s.params(args=s.args[:-1] + ',"path":"/srv/x"}')),
        call="read_file",
    )
    yield dup(
        "argument-escaped",
        "One argument twice, the key escaped",
        lambda s: s.text(params=s.params(args='{"path":"/srv/x",' + s.args[1:].replace("path", "p\\u0061th"))),
        call="read_file",
    )
    yield dup("far", "Two names with 20,000 members between", lambda s: s.text(params=_far_duplicate(s)))


def _far_duplicate(shot: Shot) -> str:
    padding = ",".join(f'"x{i}":{i}' for i in range(20_000))
    return shot.params(name=f'"echo",{padding},"name":{shot.name}')


def _escapes() -> Iterator[Case]:
    def escaped(name: str, tries: str, text: Text) -> Case:
        return _body(f"escape-{name}", tries, text, benign="runs", answer="denial")

    yield escaped("method", "tools\\u002fcall", lambda s: s.text(method='"method":"tools\\u002fcall",'))
    yield escaped("solidus", "tools\\/call", lambda s: s.text(method='"method":"tools\\/call",'))
    yield escaped("method-key", "An escaped method key", lambda s: s.text(method='"\\u006dethod":"tools/call",'))
    yield escaped("all", "Every character escaped", _all_escaped)
    yield escaped("name", "An escaped tool name", lambda s: s.text(params=s.params(name=_escape(s.tool))))
    yield escaped("name-key", "An escaped name key", lambda s: s.text().replace('"name"', '"nam\\u0065"'))
    yield escaped("params-key", "An escaped params key", lambda s: s.text().replace('"params"', '"\\u0070arams"'))
    yield _body(
        "lone-surrogate",
        "A lone surrogate in an argument",
        lambda s: s.text(params=s.params(args=s.args[:-1] + ',"x":"\\ud800"}')),
    )


def _escape(text: str) -> str:
    return '"' + "".join(f"\\u{ord(char):04x}" for char in text) + '"'


def _all_escaped(shot: Shot) -> str:
    method = f"{_escape('method')}:{_escape('tools/call')},"
    params = shot.params(name=_escape(shot.tool)).replace('"name"', _escape("name"))
    return shot.text(method=method, params=params).replace('"params"', _escape("params"))


def _numbers() -> Iterator[Case]:
    def argument(name: str, tries: str, value: str, **rest: object) -> Case:
        return _body(name, tries, lambda s: s.text(params=s.params(args=f'{s.args[:-1]},"x":{value}}}')), **rest)

    yield argument("nan", "NaN as an argument", "NaN")
    yield argument("infinity", "Infinity as an argument", "Infinity")
    yield argument("minus-infinity", "-Infinity as an argument", "-Infinity")
    yield argument("overflow", "A number past every double", "1e999")
    yield argument("int-5000", "A 5000-digit integer", "9" * 5000)
    yield argument("int-19", "A 19-digit integer", "9" * 18, benign="runs", answer="denial")
    yield argument("leading-zero", "A number with a leading zero", "007")
    yield argument("hex", "A hexadecimal number", "0x10")
    yield argument("nesting-50", "50 arrays in each other", "[" * 50 + "]" * 50, benign="runs", answer="denial")
    for depth in (220, 1_000, 5_000, 100_000):
        yield argument(f"nesting-{depth}", f"{depth} arrays in each other", "[" * depth + "]" * depth)
    yield argument("nesting-objects", "2000 objects in each other", '{"x":' * 2000 + "1" + "}" * 2000)
    for name, value in {
        "float": "1.0", "exponent": "1e0", "fraction": "1.5", "30-digits": "9" * 30, "null": "null", "true": "true",
        "object": '{"x":1}', "array": "[1]", "empty": '""', "minus-zero": "-0", "nan": "NaN",
    }.items():  # fmt: skip
        yield _body(f"id-{name}", f"id: {value}", lambda s, v=value: s.text(id=f'"id":{v},'))  # type: ignore[misc]
    for name, value in {"string": '"abc"', "number-string": '"1"', "negative": "-5", "zero": "0"}.items():
        yield _body(
            f"id-{name}",
            f"id: {value}",
            lambda s, v=value: s.text(id=f'"id":{v},'),  # type: ignore[misc]
            benign="runs",
            answer="denial",
        )


def _envelope() -> Iterator[Case]:
    yield _body("plain", "The call as any client writes it", lambda s: s.text(), benign="runs", answer="denial")
    yield _body(
        "plain-argument",
        "A path that is denied, as any client writes it",
        lambda s: s.text(),
        call="read_file",
        benign="runs",
        answer="denial",
    )
    yield _body(
        "pretty",
        "The call indented over many lines",
        lambda s: json.dumps(json.loads(s.text()), indent=4),
        benign="runs",
        answer="denial",
    )
    yield _body("notification", "tools/call without an id", lambda s: s.text(id=""))
    yield _body("extra-result", "A request with a result", lambda s: s.text(extra=',"result":{}'))
    yield _body("extra-error", "A request with an error", lambda s: s.text(extra=',"error":{"code":1,"message":"x"}'))
    yield _body("extra-null-result", "A request with a null result", lambda s: s.text(extra=',"result":null'))
    yield _body("extra-key", "A request with a member of its own", lambda s: s.text(extra=',"trace":{"x":1}'))
    yield _body("no-jsonrpc", "No jsonrpc", lambda s: s.text(jsonrpc=""))
    for name, version in {
        "1": '"1.0"',
        "number": "2.0",
        "null": "null",
        "3": '"3.0"',
        "blank": '"2.0 "',
    }.items():
        yield _body(
            f"jsonrpc-{name}",
            f"jsonrpc: {version}",
            lambda s, v=version: s.text(jsonrpc=f'"jsonrpc":{v},'),  # type: ignore[misc]
        )
    yield _body(
        "proto",
        "The call hidden in __proto__",
        lambda s: f'{{"__proto__":{s.text()},{s.ping()[1:]}',
        toothless="no server here copies members into a prototype",
    )
    yield _body(
        "proto-params",
        "The name in params.__proto__",
        lambda s: s.text(params=f'{{"__proto__":{s.params()}}}'),
        toothless="no server here copies members into a prototype",
    )
    yield _body(
        "task",
        "The call as a task",
        lambda s: s.text(params=s.params(extra=',"task":{"ttl":1000}')),
        answer="denial",
    )
    yield _body(
        "input-responses",
        "The call as a retry with inputResponses",
        lambda s: s.text(params=s.params(extra=',"inputResponses":{},"requestState":"x"')),
        answer="denial",
    )


def _members() -> Iterator[Case]:
    for name, method in {
        "capital": "Tools/Call", "upper": "TOOLS/CALL", "space-before": " tools/call", "space-after": "tools/call ",
        "nul": "tools/call\\u0000", "newline": "tools/call\\n", "zero-width": "tools/\\u200bcall",
        "fullwidth": "tools\\uff0fcall",
    }.items():  # fmt: skip
        yield _body(
            f"method-{name}",
            f"method: {method!r}",
            lambda s, m=method: s.text(method=f'"method":"{m}",'),  # type: ignore[misc]
        )
    for name, old, new in (
        ("method-title", "method", "Method"), ("method-upper", "method", "METHOD"), ("params-upper", "params", "PARAMS"),
        ("params-long-s", "params", "param\u017f"), ("name-title", "name", "Name"), ("args-title", "arguments", "Arguments"),
        ("method-nul", "method", "method\\u0000"), ("method-blank", "method", " method"),
    ):  # fmt: skip
        yield _body(
            f"key-{name}",
            f"The key {old} as {new!r}, as Go's decoder takes it",
            lambda s, o=old, n=new: s.text().replace(f'"{o}"', f'"{n}"', 1),  # type: ignore[misc]
        )
    yield _body("name-array", "The name in an array", lambda s: s.text(params=s.params(name=f"[{s.name}]")))
    yield _body("name-nested-array", "In two arrays", lambda s: s.text(params=s.params(name=f"[[{s.name}]]")))
    yield _body("params-array", "Positional params", lambda s: s.text(params=f"[{s.name},{s.args}]"))
    yield _body("params-string", "Params as JSON in a string", lambda s: s.text(params=json.dumps(s.params())))
    yield _body(
        "args-string",
        "Arguments as JSON in a string",
        lambda s: s.text(params=s.params(args=json.dumps(s.args))),
    )
    yield _body("args-array", "Arguments in an array", lambda s: s.text(params=s.params(args=f"[{s.args}]")))


def _several() -> Iterator[Case]:
    def batch(name: str, tries: str, text: Text) -> Case:
        return _body(f"batch-{name}", tries, text, benign="refused")

    yield batch("one", "A batch of one", lambda s: f"[{s.text()}]")
    yield batch("two", "Something harmless and the call", lambda s: f"[{s.ping()},{s.text()}]")
    yield batch("hidden", "The call among 200 pings", lambda s: f"[{(s.ping() + ',') * 200}{s.text()}]")
    yield batch("nested", "A batch in a batch", lambda s: f"[[{s.text()}]]")
    yield batch("notification", "A batch of notifications", lambda s: f"[{s.text(id='')}]")
    yield batch(
        "responses",
        "A response and the call",
        lambda s: f'[{{"jsonrpc":"2.0","id":"none","result":{{}}}},{s.text()}]',
    )
    yield batch("scalar", "A number, then the call", lambda s: f"[1,{s.text()}]")
    yield batch("blank", "A batch after blanks", lambda s: f" \r\n\t[ {s.text()} ]")
    yield batch("trailing-comma", "A batch with a trailing comma", lambda s: f"[{s.text()},]")
    yield _body("ndjson", "Two messages, one a line", lambda s: f"{s.ping()}\n{s.text()}\n")
    yield _body("ndjson-first", "The call, then a line", lambda s: f"{s.text()}\n{s.ping()}\n")
    yield _body("ndjson-cr", "Two messages, CR between", lambda s: f"{s.ping()}\r{s.text()}")
    yield _body("concatenated", "Two messages without anything between", lambda s: s.ping() + s.text())
    yield _body("concatenated-first", "The call first", lambda s: s.text() + s.ping())
    yield _body("json-seq", "RFC 7464 record separators", lambda s: f"\x1e{s.text()}\n")
    yield _body("sse-body", "The message as an SSE event", lambda s: f"event: message\ndata: {s.text()}\n\n")


def _syntax() -> Iterator[Case]:
    yield _body(
        "trailing-garbage",
        "Garbage after the message: Go's Decoder stops before it",
        lambda s: s.text() + "xyz",
    )
    yield _body("trailing-brace", "One brace too many", lambda s: s.text() + "}")
    yield _body("trailing-nul", "A NUL after the message", lambda s: s.text() + "\0")
    yield _body("leading-nul", "A NUL before the message", lambda s: "\0" + s.text())
    yield _body("leading-guard", "A )]}' guard before the message", lambda s: ")]}',\n" + s.text())
    yield _body("leading-garbage", "Garbage before the message", lambda s: "xyz" + s.text())
    yield _body("leading-comment", "A comment before the message", lambda s: "/* x */" + s.text())
    yield _body("inner-comment", "A comment in the message", lambda s: s.text(first="/* x */"))
    yield _body("line-comment", "A line comment before the message", lambda s: "// x\n" + s.text())
    yield _body("trailing-comma", "A trailing comma", lambda s: s.text(extra=","))
    yield _body("odd-blanks", "Form feed and no-break space before", lambda s: "\x0c\u00a0" + s.text())
    yield _body("raw-newline", "A raw line break in a string", lambda s: s.text(first='"x":"a\nb",'))
    yield _body("raw-control", "A raw control character in a string", lambda s: s.text(first='"x":"\x01",'))
    yield _body("bad-escape", "An unknown escape in a string", lambda s: s.text(first='"x":"\\q",'))
    yield _body("unquoted-key", "A key without quotes", lambda s: s.text(first="x:1,"))
    yield _body("unclosed", "The last brace is missing", lambda s: s.text()[:-1] + " ")
    yield _body("blanks-2mb", "2 MB of blanks before the message", lambda s: " " * 2_000_000 + s.text())
    yield _body(
        "blanks-after",
        "Blanks after the message",
        lambda s: s.text() + " \r\n\t\n",
        benign="runs",
        answer="denial",
    )
    yield _body("padding-1mb", "A 1 MB member before the method", lambda s: s.text(first=f'"x":"{"a" * 1_000_000}",'))


CASES: tuple[Case, ...] = (
    *_envelope(),
    *_encodings(),
    *_bad_utf8(),
    *_duplicates(),
    *_escapes(),
    *_numbers(),
    *_members(),
    *_several(),
    *_syntax(),
)
