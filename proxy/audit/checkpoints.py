"""Checkpoints: signed statements of how far a chain had come, stored outside the database.

One line of JSON each. The signature is Ed25519 over the text

    interlock-checkpoint 1 KIND WRITER SEQ HASH TIME KEY

with the fields as they are in the line. `head`: the writer had come to event SEQ,
whose link is HASH. `pruned`: events up to SEQ may be gone, on purpose. `rejected`: event
SEQ is not in the store, since that did not take it.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from proxy.core.event import Head
from proxy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from proxy.audit.signing_keys import AuditKeys, PublicKey

CHECKPOINT_FILE = "checkpoints/checkpoints.jsonl"  # below the state folder
BLOCK = 4096
_FORM = re.compile(r"(head|pruned|rejected) [^\s]{1,200} (0|[1-9]\d{0,18}) [0-9a-f]{64} \d{1,12}\.\d{6} [0-9a-f]{16}")

type Kind = Literal["head", "pruned", "rejected"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A signed statement about a writer's chain."""

    kind: str
    writer: str
    seq: int
    hash: str
    time: str
    key: str
    signature: str = ""

    def text(self) -> bytes:
        return f"interlock-checkpoint 1 {self}".encode()

    def line(self) -> str:
        return json.dumps({"version": 1, **asdict(self)})

    def __str__(self) -> str:
        return f"{self.kind} {self.writer} {self.seq} {self.hash} {self.time} {self.key}"


class UnknownKey(str):
    """Why a checkpoint proves nothing: a key signed it that is not trusted. It may be that of another machine."""

    __slots__ = ()


class UnknownKeyError(ValueError):
    """A checkpoint that a key signed which is not known."""


def sign(keys: AuditKeys, kind: Kind, head: Head, now: float) -> Checkpoint:
    """Return a checkpoint, signed with the key of the moment. Raises ConfigError or OSError where there is no key."""
    key_id, key = keys.signer()
    made = Checkpoint(kind, head.writer, head.seq, head.hash, f"{now:.6f}", key_id)
    return replace(made, signature=base64.b64encode(key.sign(made.text())).decode())


def append(path: Path, checkpoints: Sequence[Checkpoint]) -> None:
    """Add checkpoints to a file, durably and all or none; several processes may do so at once. Raises OSError."""
    append_lines(path, [checkpoint.line() for checkpoint in checkpoints])


def append_lines(path: Path, lines: Sequence[str]) -> None:
    """Add lines to a file in the same way."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        end = _cut_to_lines(handle)
        rest = "".join(f"{line}\n" for line in lines).encode()
        try:
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, end)  # part of a line would spoil the next one
            raise
    finally:
        os.close(handle)


def _cut_to_lines(handle: int) -> int:
    """Cut off what a crash left of a last line; return where the file ends."""
    end = whole = os.lseek(handle, 0, os.SEEK_END)
    while whole:
        start = max(0, whole - BLOCK)
        if found := os.pread(handle, whole - start, start).rfind(b"\n") + 1:
            whole = start + found
            break
        whole = start
    if whole < end:
        os.ftruncate(handle, whole)
    return whole


def read(path: Path, keys: Sequence[PublicKey]) -> Iterator[Checkpoint | str]:
    """Yield the checkpoints of a file, or why one is not valid. Raises ConfigError where the file cannot be read."""
    yield from parse(read_lines(path), str(path), keys)


def read_lines(path: Path) -> list[bytes]:
    """Return the lines of a file of checkpoints. Raises ConfigError where it cannot be read."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError(f"the checkpoints in {path} cannot be read ({error.strerror})") from error
    return lines[:-1]  # a last line without its end is just being written


def parse(lines: Iterable[bytes], name: str, keys: Sequence[PublicKey]) -> Iterator[Checkpoint | str]:
    """Yield the checkpoints in lines of a file called `name`, or why one is not valid."""
    known = {key.key_id: key for key in keys}
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            yield _checked(json.loads(line), known)
        except UnknownKeyError as error:
            yield UnknownKey(f"{name}, line {number}: {error}")
        except (ValueError, TypeError, RecursionError) as error:
            yield f"{name}, line {number}: {error}"


def _checked(value: Any, known: dict[str, PublicKey]) -> Checkpoint:
    """Return a checkpoint that was read. Raises ValueError or TypeError where it is none or its signature is wrong."""
    if not isinstance(value, dict) or value.pop("version", None) != 1:
        raise ValueError("it is no checkpoint of version 1")
    made = Checkpoint(**value)
    # The strict form leaves one reading of the signed text: a writer with a space in it could shift the fields.
    if type(made.seq) is not int or not _FORM.fullmatch(str(made)):
        raise ValueError("it is no checkpoint")
    key = known.get(made.key)
    if key is None:
        raise UnknownKeyError(f"it is signed by key {made.key}, which is not known")
    if not key.verifies(base64.b64decode(made.signature, validate=True), made.text()):
        raise ValueError("its signature is wrong")
    return made


@dataclass(slots=True)
class Signed:
    """What checkpoints say of one writer: links by number, and up to where events may be gone."""

    links: dict[int, str] = field(default_factory=dict[int, str])
    rejected: dict[int, str] = field(default_factory=dict[int, str])
    pruned: int = 0
    times: dict[int, float] = field(default_factory=dict[int, float])  # when each number was signed as the head first
    conflict: int | None = None  # the number of an event for which two links were signed

    @property
    def last(self) -> int:
        return max(self.links, default=0)

    def anchor(self, writer: str, since: float) -> Head | None:
        """Return the last head that was signed before a time: every event since then comes behind it."""
        seq = max((seq for seq, at in self.times.items() if at <= since), default=None)
        return None if seq is None else Head(writer, seq, self.links[seq])

    def add(self, checkpoint: Checkpoint) -> None:
        # Two links for one number: the log was copied and continued twice, or a key signed a forged history.
        if self.links.setdefault(checkpoint.seq, checkpoint.hash) != checkpoint.hash:
            self.conflict = min(checkpoint.seq, self.conflict or checkpoint.seq)
        if checkpoint.kind == "head":
            at = float(checkpoint.time)
            self.times[checkpoint.seq] = min(at, self.times.get(checkpoint.seq, at))
        if checkpoint.kind == "pruned":
            self.pruned = max(self.pruned, checkpoint.seq)
        elif checkpoint.kind == "rejected":
            self.rejected[checkpoint.seq] = checkpoint.hash


def by_writer(checkpoints: Iterable[Checkpoint]) -> dict[str, Signed]:
    found: dict[str, Signed] = {}
    for checkpoint in checkpoints:
        found.setdefault(checkpoint.writer, Signed()).add(checkpoint)
    return found
