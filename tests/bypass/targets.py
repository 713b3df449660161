"""The servers that cases are fired at, and how each wants to be spoken to."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tests.bypass.shot import Aim, Route
from tests.support.harness import Certificates, ServerHandle, start_python_server
from tests.support.node_tools import ServerName, start_node_server
from tests.support.raw_socket import Tls, parse_answers
from tests.support.timeouts import PATIENCE

type Start = Callable[[Path, Certificates], AbstractContextManager[ServerHandle]]
type Opening = Literal["none", "session", "sse"]


@dataclass(frozen=True)
class Target:
    """A kind of server; `process` names the process, which several targets may share."""

    name: str
    process: str
    routes: tuple[Route, ...]
    opening: Opening = "none"
    modern: bool = False
    tls: bool = False
    lenient: bool = False


def _python(module: str, *flags: str, tls: bool = False, requests: bool = False) -> Start:
    def start(directory: Path, certificates: Certificates) -> AbstractContextManager[ServerHandle]:
        return start_python_server(
            module, directory, certificates=certificates if tls else None, flags=flags, requests=requests
        )

    return start


def _node(name: ServerName, *flags: str) -> Start:
    def start(directory: Path, certificates: Certificates) -> AbstractContextManager[ServerHandle]:
        return start_node_server(name, directory, flags=flags)

    return start


PROCESSES: dict[str, Start] = {
    "lenient": _python("lenient", requests=True),
    "lenient-tls": _python("lenient", tls=True),
    "python": _python("python_modern"),
    "python-sse": _python("python_sse"),
    "node-raw": _node("v1-raw"),
    "node-express": _node("v1-express"),
    "node-sse": _node("v1-sse"),
    "node-v2": _node("v2", "--json"),
}
# In reverse mode each server has a proxy of its own: those before the SDKs' servers are started by `make bypass` alone.
IS_FULL = os.environ.get("BYPASS") == "full"
_SDK: tuple[Route, ...] = ("regular", "reverse") if IS_FULL else ("regular",)
TARGETS: tuple[Target, ...] = (
    Target("lenient", "lenient", ("regular", "reverse"), lenient=True),
    Target("lenient-tls", "lenient-tls", ("connect", "reversetls"), tls=True, lenient=True),
    Target("python-modern", "python", _SDK, modern=True),
    Target("python-session", "python", _SDK, opening="session"),
    Target("python-sse", "python-sse", _SDK, opening="sse"),
    Target("node-raw", "node-raw", _SDK, opening="session"),
    Target("node-express", "node-express", _SDK, opening="session"),
    Target("node-sse", "node-sse", _SDK, opening="sse"),
    Target("node-v2", "node-v2", _SDK, modern=True),
    Target("node-v2-session", "node-v2", _SDK, opening="session"),
)


@contextlib.contextmanager
def opened(target: Target, aim: Aim) -> Iterator[Aim]:
    """Do what comes before the first call (a handshake, a stream) and give the aim that knows of it."""
    if target.opening == "session":
        yield _with_session(aim)
    elif target.opening == "sse":
        with _sse_stream(aim) as path:
            yield replace(aim, path=path)
    else:
        yield aim


def _with_session(aim: Aim) -> Aim:
    hello = (
        b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
        b'"capabilities":{},"clientInfo":{"name":"bypass","version":"1"}}}'
    )
    answers = parse_answers(aim.send([_post(aim, hello)], limit=PATIENCE, answers=1))
    assert answers, f"no answer to initialize at {aim}"
    assert answers[0].status == 200, answers[0]
    session = ("Mcp-Session-Id", answers[0].headers["mcp-session-id"])
    ready = replace(aim, headers=(session, ("MCP-Protocol-Version", "2025-06-18")))
    done = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
    assert parse_answers(ready.send([_post(ready, done)], limit=PATIENCE, answers=1))[0].status == 202
    return ready


def _post(aim: Aim, body: bytes) -> bytes:
    headers = "".join(f"{name}: {value}\r\n" for name, value in aim.headers)
    return (
        f"POST {aim.target(aim.path)} HTTP/1.1\r\nHost: {aim.authority}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


@contextlib.contextmanager
def _sse_stream(aim: Aim) -> Iterator[str]:
    """Hold a legacy GET stream open; return the path that it says to post to."""
    head = f"GET {aim.target('/sse')} HTTP/1.1\r\nHost: {aim.authority}\r\nAccept: text/event-stream\r\n\r\n"
    with contextlib.closing(socket.create_connection(("127.0.0.1", aim.port), timeout=PATIENCE)) as plain:
        sock = Tls(aim.ca_file).wrap(plain) if aim.tls else plain
        sock.sendall(head.encode())
        seen = b""
        while not (found := re.search(rb"data: (\S+)\r?\n", seen)):
            chunk = sock.recv(4096)
            assert chunk, f"the stream ended without an endpoint: {seen!r}"
            seen += chunk
        path = found.group(1).decode().removeprefix(f"http://{aim.authority}")
        _introduce(replace(aim, path=path))
        yield path


def _introduce(aim: Aim) -> None:
    """Shake hands over the message endpoint; the stream's answers are not needed."""
    hello = (
        b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05",'
        b'"capabilities":{},"clientInfo":{"name":"bypass","version":"1"}}}'
    )
    for body in (hello, b'{"jsonrpc":"2.0","method":"notifications/initialized"}'):
        answers = parse_answers(aim.send([_post(aim, body)], limit=PATIENCE, answers=1))
        assert answers, f"no answer to the handshake at {aim}"
        assert answers[0].status == 202, answers[0]
