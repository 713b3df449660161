"""Proofs that a transparency log has our checkpoints: in `checkpoints/transparency.jsonl` of the state folder.

One line of JSON a checkpoint: its line exactly as it was signed, and the log's entry about the SHA-256 of that line,
with all that proves it. So nobody needs the log to check them, only its public key.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proxy.audit.checkpoints import read_lines
from proxy.audit.rekor_entry import BadEntryError, LogKey, check_entry
from proxy.errors import ConfigError
from proxy.system.secret_files import write_private

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from proxy.audit.rekor_entry import Logged

PROOF_FILE = "checkpoints/transparency.jsonl"  # below the state folder
PROBLEM_FILE = "checkpoints/transparency-problem.json"


@dataclass(frozen=True, slots=True)
class Proof:
    """A checkpoint's line, and the log's entry about it."""

    checkpoint: str
    log: str
    entry_id: str
    entry: dict[str, Any]

    def line(self) -> str:
        said = {"checkpoint": self.checkpoint, "log": self.log, "id": self.entry_id, "entry": self.entry}
        return json.dumps({"version": 1, **said})

    def check(self, *keys: LogKey) -> Logged:
        """Return since when the log has the checkpoint; the log is that of one of the keys. Raises BadEntryError."""
        log_id = self.entry.get("logID")
        key = next((one for one in keys if one.log_id == log_id), None)
        if key is None:
            raise BadEntryError(f"it is of log {log_id!r}, whose key is not given")
        return check_entry(self.entry, digest_of(self.checkpoint), key)


@dataclass(slots=True)
class LoggedCheckpoints:
    """What proofs say: lines of checkpoints that the log has, since when, and which proofs are none."""

    lines: list[bytes] = field(default_factory=list[bytes])
    times: dict[bytes, float] = field(default_factory=dict[bytes, float])
    broken: list[str] = field(default_factory=list[str])


def digest_of(line: str) -> str:
    """Return the SHA-256 that the log has of a checkpoint: that of its line, without the line's end."""
    return hashlib.sha256(line.encode()).hexdigest()


def read_log_key(path: Path) -> LogKey:
    """Return the public key of a log. Raises ConfigError where the file has none."""
    try:
        return LogKey.parse(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as a transparency log's public key ({error})") from error


def parse_proof(line: bytes) -> Proof:
    """Read a line. Raises BadEntryError where it is no proof."""
    try:
        said = json.loads(line)
        version, proof = said["version"], Proof(said["checkpoint"], said["log"], said["id"], said["entry"])
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise BadEntryError("it is no proof of a transparency log") from error
    if version != 1 or not isinstance(proof.checkpoint, str) or not isinstance(proof.entry, dict):
        raise BadEntryError("it is no proof of version 1")
    return proof


def read_proofs(files: Sequence[Path], keys: Sequence[LogKey]) -> LoggedCheckpoints:
    """Check the proofs in files. Raises ConfigError where a file cannot be read."""
    found = LoggedCheckpoints()
    for path in files:
        for number, line in enumerate(read_lines(path), 1):
            if line:
                _take(found, line, f"{path}, line {number}", keys)
    return found


def _take(found: LoggedCheckpoints, line: bytes, where: str, keys: Sequence[LogKey]) -> None:
    try:
        proof = parse_proof(line)
        logged = proof.check(*keys)
    except BadEntryError as error:
        found.broken.append(f"{where}: {error}")
        return
    said = proof.checkpoint.encode()
    found.lines.append(said)
    found.times[said] = min(logged.time, found.times.get(said, logged.time))


def write_problem(state_dir: Path, problem: str | None, since: float) -> None:
    """Keep for `status` and `/readyz` why the log takes no checkpoints, or that it does. Raises OSError."""
    path = state_dir / PROBLEM_FILE
    if problem is None:
        path.unlink(missing_ok=True)
    else:
        write_private(path, json.dumps({"problem": problem, "since": since}).encode())


def read_problem(state_dir: Path, now: float) -> str | None:
    """Return since when the log takes no checkpoints, and why."""
    try:
        said = json.loads((state_dir / PROBLEM_FILE).read_bytes())
        return f"it has taken no checkpoints for {now - said['since']:.0f} s: {said['problem']}"
    except (OSError, ValueError, TypeError, LookupError):
        return None
