"""The table's messages, and tricks of lines, through `interlock run` at a server that notes every byte.

What the server got is read in every way that we know a server of lines to read: to none of
them may it hold a denied call, or anything else than one plain message a line.
"""

from __future__ import annotations

import io
import json
import os
import re
import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.wire.jsonrpc import parse_json, parse_message
from proxy.wire.mcp import check_message
from tests.bypass.cases_encoding import CASES as ENCODING
from tests.bypass.cases_json import CASES as JSON
from tests.bypass.cases_readers import CASES as READER_CASES
from tests.bypass.shot import Aim, Case, Shot, benign_shot, denied_shot
from tests.support.stdio_harness import Run, recorder, start_run

BODY_LIMIT = 4 << 20


def python_lines(raw: bytes) -> list[str]:
    return list(io.TextIOWrapper(io.BytesIO(raw), "utf-8", "replace"))


def node_lines(raw: bytes) -> list[str]:
    return [line.removesuffix("\r") for line in raw.decode("utf-8", "replace").split("\n")[:-1]]


def unicode_lines(raw: bytes) -> list[str]:
    return raw.decode("utf-8", "replace").splitlines()


def latin_lines(raw: bytes) -> list[str]:
    return raw.decode("latin-1").splitlines()


def zero_lines(raw: bytes) -> list[str]:
    return re.split("[\0\r\n]", raw.decode("utf-8", "replace"))[:-1]


READERS: list[Callable[[bytes], list[str]]] = [python_lines, node_lines, unicode_lines, latin_lines, zero_lines]


def aims() -> list[Aim]:
    return [Aim("direct", 0, 0), Aim("direct", 0, 0, modern=True)]


def body_of(case: Case, shot: Shot) -> bytes:
    """Return the body of a case that is one plain request; nothing where it is none."""
    built = case.build(shot) if case.build else b""
    return built.partition(b"\r\n\r\n")[2] if isinstance(built, bytes) else b""


def table() -> Iterator[tuple[Case, Aim]]:
    for aim in aims():
        for case in (*JSON, *ENCODING, *READER_CASES):
            if len(body_of(case, denied_shot(case, aim, "x"))) > 0:
                yield case, aim


def settle(run: Run, number: str) -> None:
    """Return once all that was sent is decided."""
    run.send(b"\n")
    run.ask("ping", number)


def read(log: Path) -> list[dict[str, Any]]:
    """Return the messages a server got, having seen that every reader reads the same."""
    raw = log.read_bytes()
    read_by = {reader.__name__: [line.strip() for line in reader(raw)] for reader in READERS}
    assert len({tuple(lines) for lines in read_by.values()}) == 1, "readers of lines disagree"
    messages = [parse_message(parse_json(line.encode())) for line in read_by["python_lines"]]
    for message in messages:
        check_message(message)
    return [message.value for message in messages]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "got.log"


def test_no_message_of_the_table_brings_a_denied_call_to_the_server(tmp_path: Path, log: Path) -> None:
    rows = list(table())
    assert len(rows) > 200
    with start_run(tmp_path, recorder(log)) as run:
        for index, (case, aim) in enumerate(rows):
            run.send(body_of(case, denied_shot(case, aim, f"denied-{index}-")) + b"\n")
            if index % 20 == 19:
                settle(run, f"settle-{index}")
        settle(run, "last")
        assert run.end() == 0
    got = read(log)
    passed = {case.id for index, (case, _) in enumerate(rows) if f"denied-{index}-".encode() in log.read_bytes()}
    assert passed <= {"proto"}  # a ping with an odd member, and decided as one
    assert all(message["method"] == "ping" for message in got), got


def test_what_the_table_calls_harmless_still_runs(tmp_path: Path, log: Path) -> None:
    rows = [
        (case, aim) for case, aim in table()
        if case.benign == "runs" and b"\n" not in body_of(case, benign_shot(case, aim, "x")).strip()
    ]  # fmt: skip
    assert len(rows) > 10
    with start_run(tmp_path, recorder(log)) as run:
        for index, (case, aim) in enumerate(rows):
            run.send(body_of(case, benign_shot(case, aim, f"benign-{index}-")) + b"\n")
            settle(run, f"settle-{index}")  # some have the same id
        run.end()
    text = json.dumps(read(log))
    assert [case.id for index, (case, _) in enumerate(rows) if f"benign-{index}-" not in text] == []


DANGER = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"danger","arguments":{}}}'
PING = b'{"jsonrpc":"2.0","id":8,"method":"ping"}'
DANGER_TEXT = DANGER.decode()
SEPARATORS = [b"\r", b"\r\r", b"\0", b"\x0b", b"\x0c", b"\x1c", b"\x1d", b"\x1e", "\x85".encode(), "\u2028".encode(),
              "\u2029".encode(), b" ", b"", b",", b";", b"\x85", b"\xff"]  # fmt: skip
TRICKS: dict[str, bytes] = {
    **{f"two-{s!r}": PING + s + DANGER + b"\n" for s in SEPARATORS},
    **{f"before-{s!r}": s + DANGER + b"\n" for s in SEPARATORS},
    **{f"after-{s!r}": DANGER + s + b"\n" for s in SEPARATORS},
    "crlf": DANGER + b"\r\n",
    "bom": b"\xef\xbb\xbf" + DANGER + b"\n",
    "bad-utf8": DANGER.replace(b"{}", b'{"x":"\xff"}') + b"\n",
    "overlong": DANGER.replace(b"tools/call", b"tools\xc0\xafcall") + b"\n",
    "batch": b"[" + PING + b"," + DANGER + b"]\n",
    "batch-of-one": b"[" + DANGER + b"]\n",
    "utf-16": DANGER_TEXT.encode("utf-16") + b"\n",
    "utf-16-be": DANGER_TEXT.encode("utf-16-be") + b"\0\n",
    "utf-32": DANGER_TEXT.encode("utf-32-le") + b"\n\0\0\0",
    "header-framing": b"Content-Length: %d\r\n\r\n" % len(DANGER) + DANGER + b"\n",
    "too-long": b'{"x":"' + b"a" * BODY_LIMIT + b'",' + DANGER[1:] + b"\n",
    "too-long-then-cr": b"a" * BODY_LIMIT + b"\r" + DANGER + b"\n",
    "string": json.dumps(DANGER_TEXT).encode() + b"\n",
    "other-protocol": b'{"jsonrpc":"2.0","id":9,"method":"run","params":{"name":"danger"}}\n',
    "no-version": b'{"id":9,"method":"x","params":{"name":"danger"}}\n',
    "words": b"danger\n",
}  # fmt: skip


@pytest.mark.parametrize("limit", [BODY_LIMIT])
def test_no_trick_of_lines_brings_a_denied_call_to_the_server(limit: int, tmp_path: Path, log: Path) -> None:
    with start_run(tmp_path, recorder(log), env={"INTERLOCK_BODY_LIMIT": str(limit)}) as run:
        for name, raw in TRICKS.items():
            run.send(raw)
            settle(run, name)
        run.send(DANGER)  # and no line feed at the end
        assert run.end() == 0
    assert b"danger" not in log.read_bytes()
    assert {message["id"] for message in read(log)} <= {*TRICKS, 8}


def test_a_message_that_comes_in_pieces_is_one_message(tmp_path: Path, log: Path) -> None:
    allowed = DANGER.replace(b"danger", b"echo").replace(b"7", b'"pieces"')
    with start_run(tmp_path, recorder(log)) as run:
        for raw in (DANGER + b"\n", allowed + b"\n"):
            for position in range(len(raw)):
                run.send(raw[position : position + 1])
        assert run.answer(7)["result"]["isError"] is True
        run.answer("pieces")
        run.send(allowed.replace(b"pieces", b"last"))
        run.end()
    assert [message["id"] for message in read(log)] == ["pieces", "last"]


@pytest.mark.parametrize(
    "text",
    [
        f"x\n{DANGER_TEXT}\n", f"x\r{DANGER_TEXT}\r", f"x\u2028{DANGER_TEXT}\u2028", f"x\x85{DANGER_TEXT}\x85",
        f"x\0{DANGER_TEXT}\0", "\u2028{'method':'tools/call','params':{'name':'danger'}}\u2028", "表\\", "\U0001f600",
    ],
)  # fmt: skip
def test_no_argument_breaks_out_of_its_line(text: str, tmp_path: Path, log: Path) -> None:
    with start_run(tmp_path, recorder(log)) as run:
        assert run.call("echo", 1, text=text)["result"]["structuredContent"]["text"] == text
        run.end()
    (message,) = read(log)
    assert message["params"] == {"name": "echo", "arguments": {"text": text}}
    assert log.read_bytes().isascii()


def test_refused_lines_are_on_record_and_the_session_lives_on(tmp_path: Path, log: Path) -> None:
    with start_run(tmp_path, recorder(log), env={"INTERLOCK_BODY_LIMIT": "2048"}) as run:
        run.send(b"hello\n", b"x" * 5000 + b"\n", PING + b"\r" + DANGER + b"\n")
        run.send({"jsonrpc": "2.0", "id": "other", "method": "weather"})
        assert run.answer("other")["error"]["data"]["reason"] == "not_mcp"
        run.call("echo", 1)
        run.end()
        events = [(e["kind"], e["reason"]) for e in run.events() if e.get("decision") == "deny"]
    assert events == [
        ("line_refused", "not_mcp"),
        ("line_refused", "body_too_large"),
        ("decided", "not_json"),
        ("line_refused", "not_mcp"),
    ]
    assert [message["id"] for message in read(log)] == [1]


def test_a_server_that_stops_reading_gets_no_call_later(tmp_path: Path) -> None:
    """A pipe that fills up is waited for; nothing is decided ahead of what was not delivered."""
    script = 'read line; echo \'{"jsonrpc":"2.0","id":1,"result":{}}\'; exec sleep 60'
    with start_run(tmp_path, ["sh", "-c", script]) as run:
        run.ask("ping", 1)
        filler = b'{"jsonrpc":"2.0","method":"notifications/x","params":{"x":"' + b"x" * 50_000 + b'"}}\n'
        assert run.process.stdin
        pipe, sent = run.process.stdin.fileno(), 0
        os.set_blocking(pipe, False)
        while sent < 4 << 20 and select.select([], [pipe], [], 2)[1]:
            sent += os.write(pipe, filler[sent % len(filler) :])
        assert sent < 4 << 20, "what nobody reads must not pile up"
