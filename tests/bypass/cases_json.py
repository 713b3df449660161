"""Cases that play with the message: its members, its escapes, its syntax, its number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.bypass.shot import Case, Shot, Text, post


def _duplicates() -> Iterator[Case]:
    def dup(name: str, tries: str, text: Text, **rest: Any) -> Case:
        return post(f"dup-{name}", tries, text, **rest)

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
        return post(f"escape-{name}", tries, text, benign="runs", answer="denial")

    yield escaped("method", "tools\\u002fcall", lambda s: s.text(method='"method":"tools\\u002fcall",'))
    yield escaped("solidus", "tools\\/call", lambda s: s.text(method='"method":"tools\\/call",'))
    yield escaped("method-key", "An escaped method key", lambda s: s.text(method='"\\u006dethod":"tools/call",'))
    yield escaped("all", "Every character escaped", _all_escaped)
    yield escaped("name", "An escaped tool name", lambda s: s.text(params=s.params(name=_escape(s.tool))))
    yield escaped("name-key", "An escaped name key", lambda s: s.text().replace('"name"', '"nam\\u0065"'))
    yield escaped("params-key", "An escaped params key", lambda s: s.text().replace('"params"', '"\\u0070arams"'))
    yield post(
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


def _envelope() -> Iterator[Case]:
    yield post("plain", "The call as any client writes it", lambda s: s.text(), benign="runs", answer="denial")
    yield post(
        "plain-argument",
        "A path that is denied, as any client writes it",
        lambda s: s.text(),
        call="read_file",
        benign="runs",
        answer="denial",
    )
    yield post(
        "pretty",
        "The call indented over many lines",
        lambda s: json.dumps(json.loads(s.text()), indent=4),
        benign="runs",
        answer="denial",
    )
    yield post("notification", "tools/call without an id", lambda s: s.text(id=""))
    yield post("extra-result", "A request with a result", lambda s: s.text(extra=',"result":{}'))
    yield post("extra-error", "A request with an error", lambda s: s.text(extra=',"error":{"code":1,"message":"x"}'))
    yield post("extra-null-result", "A request with a null result", lambda s: s.text(extra=',"result":null'))
    yield post("extra-key", "A request with a member of its own", lambda s: s.text(extra=',"trace":{"x":1}'))
    yield post("no-jsonrpc", "No jsonrpc", lambda s: s.text(jsonrpc=""))
    for name, version in {
        "1": '"1.0"',
        "number": "2.0",
        "null": "null",
        "3": '"3.0"',
        "blank": '"2.0 "',
    }.items():
        yield post(
            f"jsonrpc-{name}",
            f"jsonrpc: {version}",
            lambda s, v=version: s.text(jsonrpc=f'"jsonrpc":{v},'),  # type: ignore[misc]
        )
    yield post(
        "proto",
        "The call hidden in __proto__",
        lambda s: f'{{"__proto__":{s.text()},{s.ping()[1:]}',
        toothless="no server here copies members into a prototype",
    )
    yield post(
        "proto-params",
        "The name in params.__proto__",
        lambda s: s.text(params=f'{{"__proto__":{s.params()}}}'),
        toothless="no server here copies members into a prototype",
    )
    yield post(
        "task",
        "The call as a task",
        lambda s: s.text(params=s.params(extra=',"task":{"ttl":1000}')),
    )
    yield post(
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
        yield post(
            f"method-{name}",
            f"method: {method!r}",
            lambda s, m=method: s.text(method=f'"method":"{m}",'),  # type: ignore[misc]
        )
    for name, old, new in (
        ("method-title", "method", "Method"), ("method-upper", "method", "METHOD"),
        ("params-upper", "params", "PARAMS"), ("params-long-s", "params", "param\u017f"),
        ("name-title", "name", "Name"), ("args-title", "arguments", "Arguments"),
        ("method-nul", "method", "method\\u0000"), ("method-blank", "method", " method"),
    ):  # fmt: skip
        yield post(
            f"key-{name}",
            f"The key {old} as {new!r}, as Go's decoder takes it",
            lambda s, o=old, n=new: s.text().replace(f'"{o}"', f'"{n}"', 1),  # type: ignore[misc]
        )
    yield post("name-array", "The name in an array", lambda s: s.text(params=s.params(name=f"[{s.name}]")))
    yield post("name-nested-array", "In two arrays", lambda s: s.text(params=s.params(name=f"[[{s.name}]]")))
    yield post("params-array", "Positional params", lambda s: s.text(params=f"[{s.name},{s.args}]"))
    yield post("params-string", "Params as JSON in a string", lambda s: s.text(params=json.dumps(s.params())))
    yield post(
        "args-string",
        "Arguments as JSON in a string",
        lambda s: s.text(params=s.params(args=json.dumps(s.args))),
    )
    yield post("args-array", "Arguments in an array", lambda s: s.text(params=s.params(args=f"[{s.args}]")))


def _several() -> Iterator[Case]:
    def batch(name: str, tries: str, text: Text) -> Case:
        return post(f"batch-{name}", tries, text, benign="refused")

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
    yield post("ndjson", "Two messages, one a line", lambda s: f"{s.ping()}\n{s.text()}\n")
    yield post("ndjson-first", "The call, then a line", lambda s: f"{s.text()}\n{s.ping()}\n")
    yield post("ndjson-cr", "Two messages, CR between", lambda s: f"{s.ping()}\r{s.text()}")
    yield post("concatenated", "Two messages without anything between", lambda s: s.ping() + s.text())
    yield post("concatenated-first", "The call first", lambda s: s.text() + s.ping())
    yield post("json-seq", "RFC 7464 record separators", lambda s: f"\x1e{s.text()}\n")
    yield post(
        "scalar-number",
        "A number, then the call",
        lambda s: f"1 {s.text()}",
        toothless="the servers here want an object first",
    )
    yield post(
        "scalar-word",
        "true on a line, then the call",
        lambda s: f"true\n{s.text()}",
    )
    yield post(
        "scalar-joined",
        "null and the call, nothing between",
        lambda s: f"null{s.text()}",
        toothless="the servers here want an object first",
    )
    yield post(
        "sse-body",
        "The message as an SSE event",
        lambda s: f"event: message\ndata: {s.text()}\n\n",
        toothless="no reader we know of skips words before a value",
    )


def _syntax() -> Iterator[Case]:
    yield post(
        "trailing-garbage",
        "Garbage after the message: Go's Decoder stops before it",
        lambda s: s.text() + "xyz",
    )
    yield post("trailing-brace", "One brace too many", lambda s: s.text() + "}")
    yield post("trailing-nul", "A NUL after the message", lambda s: s.text() + "\0")
    yield post("leading-nul", "A NUL before the message", lambda s: "\0" + s.text())
    yield post(
        "leading-guard",
        "A )]}' guard before the message",
        lambda s: ")]}',\n" + s.text(),
    )
    yield post(
        "leading-garbage",
        "Garbage before the message",
        lambda s: "xyz" + s.text(),
        toothless="no reader we know of skips words before a value",
    )
    yield post("leading-comment", "A comment before the message", lambda s: "/* x */" + s.text())
    yield post("inner-comment", "A comment in the message", lambda s: s.text(first="/* x */"))
    yield post("line-comment", "A line comment before the message", lambda s: "// x\n" + s.text())
    yield post("trailing-comma", "A trailing comma", lambda s: s.text(extra=","))
    yield post("odd-blanks", "Form feed and no-break space before", lambda s: "\x0c\u00a0" + s.text())
    yield post("raw-newline", "A raw line break in a string", lambda s: s.text(first='"x":"a\nb",'))
    yield post("raw-control", "A raw control character in a string", lambda s: s.text(first='"x":"\x01",'))
    yield post("bad-escape", "An unknown escape in a string", lambda s: s.text(first='"x":"\\q",'))
    yield post("unquoted-key", "A key without quotes", lambda s: s.text(first="x:1,"))
    yield post("unclosed", "The last brace is missing", lambda s: s.text()[:-1] + " ")
    yield post("blanks-2mb", "2 MB of blanks before the message", lambda s: " " * 2_000_000 + s.text())
    yield post(
        "blanks-after",
        "Blanks after the message",
        lambda s: s.text() + " \r\n\t\n",
        benign="runs",
        answer="denial",
    )
    yield post("padding-1mb", "A 1 MB member before the method", lambda s: s.text(first=f'"x":"{"a" * 1_000_000}",'))


CASES: tuple[Case, ...] = (
    *_envelope(),
    *_duplicates(),
    *_escapes(),
    *_members(),
    *_several(),
    *_syntax(),
)
