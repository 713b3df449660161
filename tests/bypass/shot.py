"""One crafted request on its way: which call it carries, and how it is written for its route.

A case (see README.md) is a function from a Shot to what goes over the wire, so that the same
case can be aimed at any server, straight or through the proxy, with a denied call or with a
benign one.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.support.raw_socket import Segment, Tls, send_raw
from tests.support.timeouts import PATIENCE

type Route = Literal["direct", "regular", "connect", "reverse", "reversetls"]
type Header = tuple[str, str]
MODERN = "2026-07-28"
IS_WARM = os.environ.get("BYPASS_WARM") == "1"
"""Whether each request comes on a connection whose fast lane is open."""
WARM_UP = 3
DIRECT_LIMIT = 2.0
"""How long to wait for servers themselves, which may not answer at all; what they ran is in their logs."""


@dataclass(frozen=True)
class Aim:
    """Where requests go: the server, and the way there."""

    route: Route
    server_port: int
    port: int
    """Where to connect: the proxy's port, or the server's own when the route is direct."""
    path: str = "/mcp"
    headers: tuple[Header, ...] = ()
    """What the server wants with every request, such as its session's id."""
    modern: bool = False
    tls: bool = False
    ca_file: Path | None = None

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def target(self, path: str) -> str:
        """Write `path` as the request target this route wants."""
        return f"http://{self.authority}{path}" if self.route == "regular" else path

    def send(self, segments: Sequence[Segment], *, limit: float, answers: int) -> bytes:
        """Send `segments` the way there and give what came back."""
        return send_raw(
            "127.0.0.1",
            self.port,
            segments,
            connect=self.authority if self.route == "connect" else None,
            tls=Tls(self.ca_file) if self.tls else None,
            limit=limit,
            answers=answers,
            first=self._warm_up(),
        )

    def _warm_up(self) -> list[bytes]:
        """Return the calls that open the fast lane for the default head, where the table is fired into it."""
        if not IS_WARM or self.route == "direct":
            return []
        shots = (Shot(self, f"il.warm.{number}.{id(object())}", "echo") for number in range(WARM_UP))
        return [shot.request(shot.ping()) for shot in shots]


@dataclass(frozen=True)
class Shot:
    """The call to smuggle, and the means to write it."""

    aim: Aim
    marker: str
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def number(self) -> int:
        """An id of this shot's own: many shots share one session."""
        return zlib.crc32(self.marker.encode())

    @property
    def name(self) -> str:
        return json.dumps(self.tool)

    @property
    def args(self) -> str:
        return json.dumps(self.arguments)

    @property
    def meta(self) -> str:
        """The `_meta` member that 2026-07-28 wants in params, with a comma before it; else nothing."""
        if not self.aim.modern:
            return ""
        prefix = "io.modelcontextprotocol/"
        meta = {prefix + "protocolVersion": MODERN, prefix + "clientCapabilities": {}}
        return f',"_meta":{json.dumps(meta)}'

    def params(self, *, name: str | None = None, args: str | None = None, extra: str = "") -> str:
        """Write the params object; `name` and `args` are JSON texts, `extra` is `,"key":value`."""
        return f'{{"name":{name or self.name},"arguments":{args or self.args}{extra}{self.meta}}}'

    def text(
        self,
        *,
        first: str = "",
        jsonrpc: str = '"jsonrpc":"2.0",',
        id: str | None = None,  # noqa: A002  (its name on the wire)
        method: str = '"method":"tools/call",',
        params: str | None = None,
        extra: str = "",
    ) -> str:
        """Write the message; every part can be replaced by other text, members with their commas."""
        inner = self.params() if params is None else params
        number = f'"id":{self.number},' if id is None else id
        return f'{{{first}{jsonrpc}{number}{method}"params":{inner}{extra}}}'

    def ping(self) -> str:
        """Write a harmless request."""
        return f'{{"jsonrpc":"2.0","id":"{self.number}-ping","method":"ping"}}'

    def default_headers(self) -> list[Header]:
        headers = [
            ("Host", self.aim.authority),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            *self.aim.headers,
        ]
        if self.aim.modern:
            headers += [
                ("MCP-Protocol-Version", MODERN),
                ("Mcp-Method", "tools/call"),
                ("Mcp-Name", self.tool),
            ]
        return headers

    def head(
        self,
        *,
        method: str = "POST",
        path: str | None = None,
        headers: Iterable[Header] = (),
        without: Iterable[str] = (),
        version: str = "HTTP/1.1",
    ) -> str:
        """Write a request head with the default headers, less `without`, plus `headers` at the end."""
        dropped = {name.lower() for name in without}
        kept = [(name, value) for name, value in self.default_headers() if name.lower() not in dropped]
        lines = [f"{name}: {value}" for name, value in [*kept, *headers]]
        return "\r\n".join([f"{method} {self.aim.target(path or self.aim.path)} {version}", *lines, "", ""])

    def request(
        self,
        body: bytes | str | None = None,
        *,
        method: str = "POST",
        path: str | None = None,
        headers: Iterable[Header] = (),
        without: Iterable[str] = (),
        version: str = "HTTP/1.1",
    ) -> bytes:
        """Write a whole request with Content-Length; the body is the plain call unless given."""
        payload = self.text() if body is None else body
        data = payload.encode() if isinstance(payload, str) else payload
        length = [("Content-Length", str(len(data)))]
        head = self.head(method=method, path=path, headers=[*length, *headers], without=without, version=version)
        return head.encode("latin-1") + data

    def retyped(self, content_type: str, body: bytes | str | None = None) -> bytes:
        """Write a whole request with another Content-Type."""
        return self.request(body, without=["Content-Type"], headers=[("Content-Type", content_type)])


type Builder = Callable[[Shot], bytes | Sequence[Segment]]
type Text = Callable[[Shot], str]
type Talk = Callable[[Shot], bytes]


@dataclass(frozen=True)
class Case:
    """One row of the table. README.md says what each field means."""

    id: str
    tries: str
    build: Builder | None = None
    talk: Talk | None = None
    benign: Literal["runs", "refused", "either"] = "either"
    answer: Literal["denial", "any"] = "any"
    call: Literal["danger", "read_file"] = "danger"
    routes: frozenset[Route] = frozenset({"regular", "connect", "reverse", "reversetls"})
    toothless: str = ""
    limit: float = 20.0
    answers: int = 1
    hangs: str = ""

    def fire(self, shot: Shot) -> bytes:
        """Send the case and give what came back."""
        if self.talk:
            return self.talk(shot)
        assert self.build, f"{self.id} has neither build nor talk"
        built = self.build(shot)
        segments = [built] if isinstance(built, bytes) else built
        return shot.aim.send(segments, limit=self.waits(shot.aim.route), answers=self.answers)

    def waits(self, route: Route) -> float:
        """Return how long an answer is waited for: as long as it may take, where one must come."""
        if self.hangs:
            return min(self.limit, 1.5)
        if route == "direct":
            return min(self.limit, DIRECT_LIMIT)
        return PATIENCE if self.answers == 1 else self.limit


def post(name: str, tries: str, text: Text, **rest: Any) -> Case:
    """Return a case that is an ordinary POST with a crafted body."""
    return Case(name, tries, build=lambda shot: shot.request(text(shot)), **rest)


def denied_shot(case: Case, aim: Aim, marker: str) -> Shot:
    """Return the shot that must not hit."""
    if case.call == "read_file":
        return Shot(aim, marker, "read_file", {"path": f"/etc/{marker}"})
    return Shot(aim, marker, "danger", {"note": marker})


def benign_shot(case: Case, aim: Aim, marker: str) -> Shot:
    """Return the harmless shot of the same shape."""
    if case.call == "read_file":
        return Shot(aim, marker, "read_file", {"path": f"/srv/{marker}"})
    return Shot(aim, marker, "echo", {"text": marker})
