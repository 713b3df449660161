"""Whatever part fails, nothing passes: each is made to fail in a real proxy before a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.daemon.faulty import PARTS
from tests.support.harness import Interlock, ServerHandle, start_interlock, start_python_server
from tests.support.raw_socket import parse_answers, send_raw

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}}'
# Where these fail there is no sink, or nobody to name in an event.
UNRECORDED = {"record", "context"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    flags = ["--stateless", "--json"]
    with start_python_server("python_modern", tmp_path_factory.mktemp("server"), flags=flags) as handle:
        yield handle


def post(port: int, server: ServerHandle, body: bytes = CALL) -> tuple[int, str]:
    head = (
        f"POST {server.url}/mcp HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2025-06-18\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    answer = parse_answers(send_raw("127.0.0.1", port, [head.encode() + body]))[0]
    return answer.status, answer.body.decode()


def test_the_call_executes_where_nothing_fails(tmp_path, server: ServerHandle):
    server.new_executions()
    with start_interlock(tmp_path) as interlock:
        status, body = post(interlock.port, server)
    assert (status, '"hi"' in body) == (200, True)
    assert [run["tool"] for run in server.new_executions()] == ["echo"]


class Faulty(NamedTuple):
    """A proxy whose parts fail as they are told to."""

    interlock: Interlock
    told: Path

    def refusals(self) -> int:
        return sum(event.get("reason") == "internal_error" for event in self.interlock.events(some=False))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    told = tmp_path_factory.mktemp("faulty") / "part"
    told.write_text("")
    with start_interlock(told.parent, program=["tests.daemon.faulty", str(told)]) as interlock:
        yield Faulty(interlock, told)


@pytest.mark.parametrize("part", PARTS)
def test_a_failing_part_refuses_the_call_and_leaves_an_event(faulty: Faulty, server: ServerHandle, part: str):
    server.new_executions()
    before = faulty.refusals()
    faulty.told.write_text(part)
    status, body = post(faulty.interlock.port, server)
    faulty.told.write_text("")
    assert server.new_executions() == []
    assert "internal_error" in body, (status, body)
    assert faulty.refusals() - before == (part not in UNRECORDED)
    assert post(faulty.interlock.port, server)[0] == 200, "it does not go on once the part works again"
    assert [run["tool"] for run in server.new_executions()] == ["echo"]


def test_an_audit_log_on_a_full_disk_refuses_calls_and_says_so(tmp_path, server: ServerHandle):
    server.new_executions()
    # Small ones are moved to the store sooner than they fill the log; this one does not fit whatever is moved.
    big = CALL.replace(b'"hi"', b'"' + b"x" * 400_000 + b'"')
    with start_interlock(tmp_path, settings={"audit_log_limit": "128KiB"}) as interlock:
        answers = [post(interlock.port, server, body)[1] for body in (CALL, big, CALL)]
    assert ["audit_unavailable" in body for body in answers] == [False, True, False]
    assert len(server.new_executions()) == 2
