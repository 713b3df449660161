"""Remembers, signed, how far each writer's chain was verified: `audit verify --since last` does not read it again.

In `checkpoints/verified.jsonl` of the state folder: checkpoints of kind head, one a writer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from proxy.audit.checkpoints import Checkpoint, parse, read_lines, sign
from proxy.audit.signing_keys import AuditKeys
from proxy.core.event import Head
from proxy.system.secret_files import write_private

if TYPE_CHECKING:
    from pathlib import Path

    from proxy.audit.verify import Report

VERIFIED_FILE = "checkpoints/verified.jsonl"  # below the state folder


def read_verified(state_dir: Path) -> dict[str, Head]:
    """Return how far each writer was verified, by the valid lines. Raises ConfigError where they cannot be read."""
    path = state_dir / VERIFIED_FILE
    found = parse(read_lines(path), str(path), AuditKeys(state_dir).public()) if path.exists() else ()
    # A line that was changed counts for nothing: its writer is read from the beginning.
    return {one.writer: Head(one.writer, one.seq, one.hash) for one in found if isinstance(one, Checkpoint)}


def write_verified(state_dir: Path, report: Report) -> None:
    """Sign how far each writer without a problem was verified. Does nothing in a folder without a key to sign with."""
    keys = AuditKeys(state_dir)
    if not keys.can_sign():
        return
    heads = dict(read_verified(state_dir))
    for one in report.writers:
        # No further than a signature covers: what comes behind it could still be rewritten.
        if one.problem is None and one.proven and one.proven_link is not None:
            heads[one.writer] = Head(one.writer, one.proven, one.proven_link)
        else:
            heads.pop(one.writer, None)
    now = time.time()
    lines = "".join(f"{sign(keys, 'head', head, now).line()}\n" for head in heads.values())
    write_private(state_dir / VERIFIED_FILE, lines.encode())
