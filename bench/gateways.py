"""What a call waits at gateways that hold sessions of their own: one call after the other, on one connection.

Gateways such as FastMCP's proxy and ContextForge terminate MCP and speak it anew, so they are compared by what they
add to the median time of a call, all before the same server.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import secrets
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.clients import LoadError, Meter
from bench.contenders import PACKAGES, Interlock, World
from bench.install import HERE
from bench.payloads import ARGUMENTS, MARK, TOOL
from bench.processes import StartError, environment, free_port, started, wait_for_port, wait_until
from bench.workloads import turns

LIMIT = 60.0
WARM = 10
INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


@dataclass(frozen=True)
class Gateway:
    """Where a gateway is."""

    port: int
    path: str
    tool: str = TOOL
    pid: int | None = None
    token: str | None = None


class Session:
    """A client's session, on one connection."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=LIMIT)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if gateway.token:
            self._headers["Authorization"] = f"Bearer {gateway.token}"
        self._numbers = itertools.count(1)
        self._ask("initialize", INITIALIZE)
        self._headers["MCP-Protocol-Version"] = INITIALIZE["protocolVersion"]  # type: ignore[assignment]
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _post(self, message: dict[str, Any]) -> bytes:
        self._connection.request("POST", self._gateway.path, json.dumps(message), self._headers)
        response = self._connection.getresponse()
        body = response.read()
        if response.status >= 300:
            raise LoadError(f"status {response.status}: {body[:200]!r}")
        if session := response.getheader("mcp-session-id"):
            self._headers["Mcp-Session-Id"] = session
        return body

    def _ask(self, method: str, params: dict[str, Any]) -> bytes:
        return self._post({"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params})

    def call(self) -> float:
        """Make a call; return the milliseconds it took."""
        began = time.perf_counter()
        body = self._ask("tools/call", {"name": self._gateway.tool, "arguments": ARGUMENTS})
        took = (time.perf_counter() - began) * 1000
        if MARK not in body:
            raise LoadError(f"not the result: {body[:300]!r}")
        return took

    def refresh(self) -> None:
        """Come back on a new connection: a server may have closed one that was silent for long."""
        self._connection.close()
        self.call()

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


@contextlib.contextmanager
def direct(world: World) -> Iterator[Gateway]:
    """The server itself."""
    yield Gateway(world.servers.session, "/mcp")


@contextlib.contextmanager
def interlock(world: World) -> Iterator[Gateway]:
    """Interlock with everything on, before the server of sessions."""
    with Interlock("interlock-session", before=world.servers.session)(world, "plain") as running:
        yield Gateway(running.port, "/mcp", pid=running.pid)


@contextlib.contextmanager
def fastmcp(world: World) -> Iterator[Gateway]:
    """FastMCP's proxy with a middleware that denies by name."""
    if reason := world.installed.reason("fastmcp"):
        raise StartError(reason)
    port = free_port()
    url = f"http://127.0.0.1:{world.servers.session}/mcp"
    argv: list[str | Path] = [PACKAGES["fastmcp"].path(), HERE / "fastmcp_proxy.py", str(port), url]
    with started("fastmcp", argv, world.folder) as server:
        wait_for_port(server, port)
        yield Gateway(port, "/mcp", pid=server.pid)


def _contextforge_environment(folder: Path) -> dict[str, str]:
    """Return a configuration near its defaults: a file as database, tokens required, no limit on calls a minute."""
    password = secrets.token_urlsafe(24) + "!aA1"
    return {
        "DATABASE_URL": f"sqlite:///{folder / 'gateway.db'}",
        "CACHE_TYPE": "memory",
        "MCPGATEWAY_UI_ENABLED": "false",
        "SSRF_ALLOW_LOCALHOST": "true",
        "SSRF_ALLOW_PRIVATE_NETWORKS": "true",
        "RATE_LIMITING_ENABLED": "false",
        "TOOL_RATE_LIMIT": "1000000",
        "JWT_SECRET_KEY": secrets.token_urlsafe(48),
        "AUTH_ENCRYPTION_SECRET": secrets.token_urlsafe(48),
        "PLATFORM_ADMIN_EMAIL": "admin@example.com",
        "PLATFORM_ADMIN_PASSWORD": password,
        "DEFAULT_USER_PASSWORD": password,
        "BASIC_AUTH_PASSWORD": password,
    }


@contextlib.contextmanager
def contextforge(world: World) -> Iterator[Gateway]:
    """ContextForge with the server registered."""
    if reason := world.installed.reason("contextforge"):
        raise StartError(reason)
    port, folder = free_port(), world.folder / "contextforge"
    folder.mkdir(parents=True, exist_ok=True)
    env, package = _contextforge_environment(folder), PACKAGES["contextforge"]
    argv: list[str | Path] = [package.path(), "--host", "127.0.0.1", "--port", str(port)]
    with started("contextforge", argv, folder, env=env, cwd=folder) as server:
        wait_until(server, lambda: _healthy(port), limit=120)
        token = _contextforge_token(package.path("python"), env, folder)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        url = f"http://127.0.0.1:{world.servers.session}/mcp"
        body = json.dumps({"name": "bench", "url": url, "transport": "STREAMABLEHTTP"})
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        connection.request("POST", "/gateways", body, headers)
        answer = connection.getresponse()
        said = answer.read()
        connection.close()
        if answer.status >= 300:
            raise StartError(f"contextforge takes no server: {answer.status} {said[:200]!r}")
        yield Gateway(port, "/mcp/", f"bench-{TOOL.replace('_', '-')}", server.pid, token)


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _contextforge_token(python: Path, env: dict[str, str], folder: Path) -> str:
    argv = [str(python), "-m", "mcpgateway.utils.create_jwt_token", "--username", env["PLATFORM_ADMIN_EMAIL"]]
    argv += ["--exp", "600", "--secret", env["JWT_SECRET_KEY"]]
    done = subprocess.run(
        argv, env=environment(env), cwd=folder, capture_output=True, text=True, check=False, timeout=LIMIT
    )
    if done.returncode:
        raise StartError(f"contextforge gives no token: {done.stderr[-300:]}")
    return done.stdout.split()[-1]


GATEWAYS = {"direct": direct, "interlock": interlock, "fastmcp": fastmcp, "contextforge": contextforge}


def run(world: World, say: Callable[[str], None], calls: int, rounds: int) -> dict[str, dict[str, float | None]]:
    """Measure each gateway in turns; return the medians."""
    with contextlib.ExitStack() as stack:
        sessions: dict[str, tuple[Session, Gateway]] = {}
        for name, start in GATEWAYS.items():
            say(f"gateways: {name} starts")
            try:
                gateway = stack.enter_context(start(world))
                sessions[name] = Session(gateway), gateway
                stack.callback(sessions[name][0].close)
                for _ in range(WARM):
                    sessions[name][0].call()
            except (StartError, LoadError, OSError, http.client.HTTPException) as error:
                sessions.pop(name, None)
                world.leave_out(f"gateways: {name}", str(error))
        times: dict[str, list[float]] = {name: [] for name in sessions}
        cpu: dict[str, list[float]] = {name: [] for name in sessions}
        for name in turns(list(sessions), rounds):
            say(f"gateways: {name}")
            session, gateway = sessions[name]
            meter = Meter(gateway.pid)
            try:
                session.refresh()
                before = meter.look()
                times[name] += [session.call() for _ in range(calls)]
            except (LoadError, OSError, http.client.HTTPException) as error:
                world.leave_out(f"gateways: {name}", str(error))
                continue
            used, _ = meter.per_call(before, calls)
            cpu[name] += [used] if used is not None else []
    return {name: _figures(times[name], cpu[name]) for name in times if times[name]}


def _figures(times: list[float], cpu: list[float]) -> dict[str, float | None]:
    return {
        "p50_ms": statistics.median(times),
        "p99_ms": statistics.quantiles(times, n=100)[98],
        "cpu_us": statistics.median(cpu) if cpu else None,
    }
