"""A small audit trail for commands to read: in a store of either kind, in a local log, or some of it in each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.audit import local_log_sql
from proxy.audit.checkpoint_signer import CheckpointSigner
from proxy.audit.checkpoints import CHECKPOINT_FILE
from proxy.audit.local_log import LOG_FILE, LocalLog
from proxy.audit.open_events import open_events
from proxy.audit.signing_keys import AuditKeys
from proxy.core.event import LogEntry
from proxy.core.model import AuditEvent, Finding

NOW = 1_763_000_000.25
LIMIT = 60


def event(number: int, kind: str = "decided", **fields: Any) -> AuditEvent:
    plain: dict[str, Any] = {
        "event_id": f"event-{number:04}",
        "kind": kind,
        "time": NOW + number,
        "call_id": f"call-{number:04}",
        "agent": "ada",
        "server": "files.example",
        "method": "tools/call",
        "tool": "read_file",
    }
    if kind == "decided":
        plain |= {"decision": "allow", "reason": "default"}
    if kind == "completed":
        plain |= {"outcome": "done", "is_error": False, "total_ms": 4.0, "upstream_ms": 3.0}
    return AuditEvent(**(plain | fields))


TRAIL = (
    event(1, arguments={"path": "/etc/hosts", "options": {"depth": 3}}),
    event(2, "completed", call_id="call-0001"),
    event(3, agent="bob", tool="shell", decision="deny", reason="policy_denied", rule="no-shell"),
    event(4, tool="pay", server="bank.example", redactions=(Finding("secrets.aws", "text", "f"),)),
    event(5, "completed", call_id="call-0004", tool="pay", server="bank.example", total_ms=90.0, is_error=True),
    event(6, "egress_denied", call_id=None, tool=None, method=None, decision="deny", reason="egress_denied"),
)


@dataclass(frozen=True)
class World:
    """Where a trail is: a state folder and, on Postgres, a database."""

    state_dir: Path
    database_url: str | None

    @property
    def flags(self) -> list[str]:
        chosen = ["--database-url", self.database_url] if self.database_url else []
        return ["--state-dir", str(self.state_dir), *chosen]

    def record(self, *events: AuditEvent) -> None:
        """Write events to the local log."""
        log = LocalLog(self.state_dir / LOG_FILE)
        for one in events:
            log.record_later(one)
        log.close()

    def ship(self) -> None:
        """Move what is in the local log to the store, as a shipper does."""
        path = self.state_dir / LOG_FILE
        connection = local_log_sql.connect(path, 1 << 30)
        state = local_log_sql.read_state(connection)
        assert state is not None
        entries = local_log_sql.page(connection, state.head.writer, 0, 10_000)
        self.signer().sign("head", [state.head])
        self.write(entries)
        local_log_sql.discard(connection, state.head.seq, {}, NOW)
        connection.close()

    def write(self, entries: Sequence[LogEntry]) -> None:
        """Put events straight into the store."""
        in_thread(lambda: self._write(entries))

    def signer(self) -> CheckpointSigner:
        AuditKeys(self.state_dir)
        return CheckpointSigner(self.state_dir, self.state_dir / CHECKPOINT_FILE)

    async def _write(self, entries: Sequence[LogEntry]) -> None:
        store = open_events(self.database_url, self.state_dir)
        try:
            await store.write(entries)
        finally:
            await store.close()


def in_thread[T](work: Callable[[], Any]) -> Any:
    """Run a coroutine in a thread: the one that asks may have an event loop already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result(LIMIT)
