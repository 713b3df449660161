"""Health: what `interlock status` and /readyz say of the proxy on this machine, and whether the store answers."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import time
from typing import TYPE_CHECKING, Any, Final

from proxy.audit.backlog import read_backlog
from proxy.audit.local_log_files import log_bytes
from proxy.audit.pipeline import destination
from proxy.console.context import NavEntry, view
from proxy.errors import AuditUnavailableError, SchemaError, StoreUnavailableError
from proxy.system import run_file
from proxy.system.package_data import version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from proxy.audit.backlog import Backlog
    from proxy.console.context import Console
    from proxy.system.run_file import RunningProxy

READY_SECONDS: Final = 2.0
MAX_ANSWER: Final = 64 << 10
LITTLE_ROOM: Final = 1 << 30

type Check = tuple[str, bool, str]  # what was looked at, whether it is well, and a sentence


class HealthPage:
    nav: NavEntry | None = NavEntry("/health", "Health", "h")

    def __init__(self, console: Console) -> None:
        self._console = console

    def routes(self) -> list[Route]:
        return [view("/health", self.show)]

    async def show(self, request: Request) -> Response:
        state_dir = self._console.settings.state_dir
        running = await asyncio.to_thread(run_file.read, state_dir)
        backlog = await asyncio.to_thread(read_backlog, state_dir, time.time())
        ready = await asyncio.to_thread(ask_ready, running.health if running else None)
        checks = [
            *_of_proxy(running, self._console.policy.problem),
            *_of_readiness(ready),
            *_of_backlog(backlog),
            await self._of_store(),
            _of_disk(shutil.disk_usage(state_dir).free),
        ]
        values = {
            "checks": checks,
            "well": all(well for _, well, _ in checks),
            "running": running,
            "version": version(),
            "state_dir": str(state_dir),
            "log_bytes": await asyncio.to_thread(log_bytes, state_dir),
        }
        return self._console.renderer.page(request, "health.html", values)

    async def _of_store(self) -> Check:
        name = f"Store ({destination(self._console.settings)})"
        try:
            store = self._console.trail.store()
            if store is None:
                return name, True, "There is none yet: it is made when the first events are shipped."
            started = time.perf_counter()
            await store.database.check()
        except (StoreUnavailableError, AuditUnavailableError, SchemaError) as error:
            return name, False, str(error)
        return name, True, f"It answers, in {1000 * (time.perf_counter() - started):.0f} ms."


def ask_ready(address: str | None) -> dict[str, Any] | None:
    """Return what /readyz of the proxy says; None where it has no such address. What goes wrong is in the answer."""
    if address is None:
        return None
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=READY_SECONDS)
    try:
        connection.request("GET", "/readyz")
        found = json.loads(connection.getresponse().read(MAX_ANSWER))
    except (OSError, ValueError, http.client.HTTPException) as error:
        return {"ready": False, "not_ready": {"readyz": f"{address} does not answer: {error}"}}
    finally:
        connection.close()
    return found if isinstance(found, dict) else {"ready": False, "not_ready": {"readyz": "it answers nonsense"}}


def _of_proxy(running: RunningProxy | None, problem: str | None) -> Iterator[Check]:
    if running is None:
        yield "Proxy", False, "No proxy runs on this state folder."
        return
    serving = sum(worker.serves for worker in running.workers)
    all_serve = serving == len(running.workers)
    yield "Workers", all_serve, f"{serving} of {len(running.workers)} serve."
    wrong = running.policy_problem or problem
    yield "Policy", wrong is None, wrong or f"In force: {running.policy_version[:12]}, from {running.policy}."


def _of_readiness(ready: dict[str, Any] | None) -> Iterator[Check]:
    if ready is None:
        yield "Readiness", True, "The health address is off (health_listen)."
    elif ready.get("ready") is True:
        yield "Readiness", True, "/readyz says that the proxy is ready."
    else:
        wrong = ready.get("not_ready")
        for name, why in wrong.items() if isinstance(wrong, dict) and wrong else [("readyz", "not ready")]:
            yield f"Readiness: {name}", False, str(why)


def _of_backlog(backlog: Backlog) -> Iterable[Check]:
    lag = f", the oldest for {backlog.lag_seconds:.0f} s" if backlog.lag_seconds else ""
    refused = f" The store refused {backlog.rejected}." if backlog.rejected else ""
    waiting = "1 event waits" if backlog.events == 1 else f"{backlog.events} events wait"
    sentence = f"{waiting} for the store{lag}.{refused}"
    return [
        ("Audit log", not (backlog.problems or backlog.rejected), sentence),
        *(("Audit log", False, problem) for problem in backlog.problems),
    ]


def _of_disk(free: int) -> Check:
    return "Disk of the state folder", free >= LITTLE_ROOM, f"{free / (1 << 30):.1f} GB are free."
