"""An audit trail to verify: a log with events, moved to a store or not, and the checkpoints of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proxy.audit.chain_reader import AllChains, LogChains, StoreChains
from proxy.audit.checkpoint_signer import CheckpointSigner
from proxy.audit.checkpoints import CHECKPOINT_FILE, Checkpoint, Signed, by_writer, read
from proxy.audit.event_store import Events
from proxy.audit.local_log import LOG_FILE
from proxy.audit.local_log_files import DaemonLog, log_states
from proxy.audit.shipper import Route, Shipper
from proxy.audit.signing_keys import AuditKeys
from proxy.audit.verify import Evidence, Report, verify
from proxy.audit.writers import WriterRegistry
from proxy.core.event import Head
from proxy.core.model import AuditEvent

START = 1_763_000_000.0


def event(number: int, **fields: Any) -> AuditEvent:
    plain = {"kind": "decided", "time": START + number, "method": "tools/call", "tool": "t", "decision": "deny"}
    return AuditEvent(**{"event_id": f"e{number:05}", **plain, **fields})


def write(state_dir: Path, numbers: Sequence[int], **fields: Any) -> Head:
    """Write events to the daemon's log, close it, and give its head."""
    log = DaemonLog(state_dir)
    for number in numbers:
        log.record_later(event(number, **fields))
    log.close()
    return log.head


def signer(state_dir: Path) -> CheckpointSigner:
    return CheckpointSigner(state_dir, state_dir / CHECKPOINT_FILE)


def sign(state_dir: Path) -> None:
    """Sign where the daemon's log is."""
    head = log_states(state_dir)[state_dir / LOG_FILE].head
    assert signer(state_dir).sign("head", [head])


async def move(state_dir: Path, store: Events) -> int:
    """Move everything to the store."""
    return await Shipper(Route(state_dir, "embedded"), store, signer(state_dir), None).move_left()


def signed(state_dir: Path) -> dict[str, Signed]:
    file = state_dir / CHECKPOINT_FILE
    found = list(read(file, AuditKeys(state_dir).public())) if file.exists() else []
    assert all(isinstance(one, Checkpoint) for one in found)
    return by_writer(one for one in found if isinstance(one, Checkpoint))


async def verified(state_dir: Path, store: Events | None = None) -> Report:
    """Verify the logs, with the store where there is one."""
    logs = LogChains(state_dir)
    chains = logs if store is None else AllChains(logs, StoreChains(store))
    evidence = Evidence(signed(state_dir), None if store is None else await WriterRegistry(store.database).rows())
    return await verify(chains, evidence)


async def execute(store: Events, sql: str, *values: Any) -> None:
    """Change a store behind our back."""
    await store.database.execute(sql, *values)
