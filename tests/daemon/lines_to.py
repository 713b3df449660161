"""Connections to a chosen worker of a proxy: the kernel spreads them, so they are tried until one fits."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.harness import Interlock
from tests.support.timeouts import PATIENCE

TRIES = 200


def worker_of(interlock: Interlock, connection: http.client.HTTPConnection) -> int:
    """Return the number of the worker at the other end of a connection, by whose process has its socket."""
    ours = connection.sock.getsockname()[1]
    wanted = f"{interlock.port:04X}", f"{ours:04X}"
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        inodes = {row[9] for row in rows if (row[1][-4:], row[2][-4:]) == wanted and row[9] != "0"}
        for number, pid in enumerate(interlock.worker_pids, 1):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                try:
                    held = os.readlink(link)  # noqa: PTH115  a name that is no path
                except FileNotFoundError:
                    continue
                if held[8:-1] in inodes and held.startswith("socket:["):
                    return number
        time.sleep(0.01)  # it was not accepted yet
    raise AssertionError("no worker has the connection")


def connect(interlock: Interlock, worker: int) -> http.client.HTTPConnection:
    """Connect to one worker."""
    for _ in range(TRIES):
        connection = http.client.HTTPConnection("127.0.0.1", interlock.port, timeout=PATIENCE)
        connection.connect()
        if worker_of(interlock, connection) == worker:
            return connection
        connection.close()
    raise AssertionError(f"no connection came to worker {worker}")


class Line:
    """A client that speaks MCP through one worker, to the server at `url`."""

    def __init__(self, interlock: Interlock, worker: int, url: str, headers: dict[str, str] | None = None) -> None:
        self._connection = connect(interlock, worker)
        self._url = url
        self.headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        self.headers |= headers or {}

    def post(self, value: Any, path: str = "") -> http.client.HTTPResponse:
        self._connection.request("POST", self._url + path, json.dumps(value), self.headers)
        return self._connection.getresponse()

    def stream(self, path: str = "", **headers: str) -> Iterator[dict[str, str]]:
        """Open a stream, and give its events as their fields."""
        self._connection.request("GET", self._url + path, headers={**self.headers, **headers})
        response = self._connection.getresponse()
        assert response.status == 200, (response.status, response.read())
        return events(response)

    def ask(self, number: int | str, method: str, params: Any) -> Any:
        """Return the answer to a request, on whatever its response is."""
        response = self.post({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        if "event-stream" not in response.headers["content-type"]:
            return json.loads(response.read())
        for event in events(response):
            value = json.loads(event.get("data") or "{}")
            if value.get("id") == number:
                response.read()
                return value
        raise AssertionError("the stream ended without an answer")

    def call(self, number: int, tool: str, **arguments: Any) -> Any:
        return self.ask(number, "tools/call", {"name": tool, "arguments": arguments})

    def close(self) -> None:
        self._connection.close()


def events(response: http.client.HTTPResponse) -> Iterator[dict[str, str]]:
    fields: dict[str, str] = {}
    while line := response.readline():
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        if line.strip():
            fields[name] = value.removeprefix(" ")
        elif fields:
            yield fields
            fields = {}


def text_of(answer: Any) -> str:
    return str(answer["result"]["content"][0]["text"])


def reason_of(answer: Any) -> str | None:
    result = answer.get("result") or {}
    denial = result.get("_meta", {}).get("mcp-interlock/denial") or answer.get("error", {}).get("data") or {}
    reason: str | None = denial.get("reason")
    return reason
