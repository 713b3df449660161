"""The checkpoints of the settings: what was signed of each writer, and the last lines of their file."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from proxy.audit.checkpoints import Checkpoint, UnknownKey, by_writer, parse, read, read_lines
from proxy.audit.pipeline import checkpoint_copies, checkpoint_file
from proxy.audit.signing_keys import AuditKeys, read_public
from proxy.audit.transparency import PROOF_FILE, LoggedCheckpoints, read_log_key, read_proofs
from proxy.audit.verify import Evidence
from proxy.audit.writers import REGISTRY, WriterRegistry, registered_keys
from proxy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from proxy.audit.event_store import Events
    from proxy.audit.rekor_entry import LogKey
    from proxy.audit.signing_keys import PublicKey
    from proxy.audit.writers import Registered
    from proxy.config import Settings

TAIL_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class LoggedHead:
    """The newest event of a writer that a transparency log vouches for, and since when it does."""

    seq: int
    time: float


@dataclass(frozen=True, slots=True)
class Found:
    """What was found signed: the evidence to verify against, bad lines, and how many lines unknown keys signed.

    `logged`: of each writer, what a transparency log vouches for.
    """

    evidence: Evidence
    broken: list[str]
    unknown: int = 0
    logged: dict[str, LoggedHead] = field(default_factory=dict[str, LoggedHead])


@dataclass(frozen=True, slots=True)
class Proofs:
    """Files with proofs of transparency logs, and these logs' keys."""

    files: Sequence[Path]
    keys: Sequence[LogKey]

    @classmethod
    def chosen(cls, settings: Settings, files: Sequence[Path] = (), keys: Sequence[Path] = ()) -> Proofs | None:
        """Return what a caller names, else those of the settings. Raises ConfigError where a log's key is missing."""
        given = [file for file in files or [settings.state_dir / PROOF_FILE] if files or file.exists()]
        read = [read_log_key(path) for path in keys or filter(None, [settings.transparency_key])]
        if given and not read:
            raise ConfigError(f"{given[0]} has proofs of a transparency log: give the log's key with transparency_key")
        return cls(given, read) if given else None


def read_checkpoints(
    settings: Settings,
    files: Sequence[Path] = (),
    public_keys: Sequence[Path] = (),
    until: float | None = None,
    *,
    registry: Sequence[Registered] | None = None,
    stored: Sequence[bytes] = (),
    proofs: Proofs | None = None,
) -> Found:
    """Return what was signed: in files, in the second places of the settings, and in lines that the store has.

    By default with the file and the keys of the settings; keys that the registry has, and that are vouched for, count
    too. Heads that were signed after `until` are left out. Raises ConfigError where a file cannot be read, and
    StoreUnavailableError for a second place that does not answer: what cannot be compared is not verified.
    """
    chosen = files or [file for file in (checkpoint_file(settings),) if file.exists()]
    keys = read_public(public_keys) if public_keys else AuditKeys(settings.state_dir).public()
    own = [(str(file), read_lines(file)) for file in chosen]
    copies = [] if files else [(place.name, place.lines()) for place in checkpoint_copies(settings)]
    logged = read_proofs(proofs.files, proofs.keys) if proofs is not None else LoggedCheckpoints()
    shared = [*copies, ("the transparency log", logged.lines), ("the store", list(stored))]
    if registry:
        known = by_writer(one for one in _parse_all([*own, *shared], keys) if isinstance(one, Checkpoint))
        trusted = {key.key_id: key for key in (*registered_keys(registry, known), *keys)}
        keys = list(trusted.values())
    found = [*_parse_all(own, keys), *(one for one in _parse_all(shared, keys) if not isinstance(one, UnknownKey))]
    signed = [one for one in found if isinstance(one, Checkpoint)]
    # Rejected and pruned events are missing from an export of an earlier time as well: those always count.
    heard = [one for one in signed if until is None or one.kind != "head" or float(one.time) <= until]
    unknown = [one for one in _parse_all(shared, keys) if isinstance(one, UnknownKey)]
    strangers = _strangers(stored, {key.key_id for key in keys})
    evidence = Evidence(by_writer(heard), registry, strangers)
    broken = [*(one for one in found if isinstance(one, str)), *logged.broken]
    return Found(evidence, broken, len(unknown), _logged_heads(heard, logged))


async def read_evidence(
    settings: Settings,
    store: Events | None,
    files: Sequence[Path] = (),
    public_keys: Sequence[Path] = (),
    until: float | None = None,
    proofs: Proofs | None = None,
) -> Found:
    """Return the same with what the store has: its registry of writers, and its checkpoints."""
    if store is None:
        return await asyncio.to_thread(lambda: read_checkpoints(settings, files, public_keys, until, proofs=proofs))
    trail = WriterRegistry(store.database)
    rows, lines = await trail.rows(), await trail.lines()
    return await asyncio.to_thread(
        lambda: read_checkpoints(settings, files, public_keys, until, registry=rows, stored=lines, proofs=proofs)
    )


def _logged_heads(signed: Sequence[Checkpoint], logged: LoggedCheckpoints) -> dict[str, LoggedHead]:
    found: dict[str, LoggedHead] = {}
    for one in sorted(signed, key=lambda one: one.seq):
        if (time := logged.times.get(one.line().encode())) is not None and not one.writer.startswith(REGISTRY):
            found[one.writer] = LoggedHead(one.seq, time)
    return found


def _parse_all(sources: Sequence[tuple[str, list[bytes]]], keys: Sequence[PublicKey]) -> list[Checkpoint | str]:
    # A line that is in several places is checked once: a signature takes longer than all the rest.
    seen: set[bytes] = set()
    found: list[Checkpoint | str] = []
    for name, lines in sources:
        found += parse((b"" if line in seen else line for line in lines), name, keys)
        seen.update(lines)
    return found


def _strangers(lines: Sequence[bytes], known: set[str]) -> frozenset[str]:
    """Return the writers of which the store has lines that an unknown key signed."""
    found: set[str] = set()
    for line in lines:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            said = json.loads(line)
            if said["key"] not in known and not str(said["writer"]).startswith(REGISTRY):
                found.add(str(said["writer"]))
    return frozenset(found)


def valid_checkpoints(settings: Settings) -> list[Checkpoint]:
    """Return every valid checkpoint of the settings' file. Raises ConfigError where it cannot be read."""
    path = checkpoint_file(settings)
    found = read(path, AuditKeys(settings.state_dir).public()) if path.exists() else ()
    return [one for one in found if isinstance(one, Checkpoint)]


def last_checkpoints(settings: Settings) -> list[Checkpoint | str]:
    """Return the last checkpoints of the settings' file, newest first, or why one is not valid.

    Only the end of the file is read: it grows for as long as proxies run. Raises ConfigError where it cannot be read.
    """
    path = checkpoint_file(settings)
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"the checkpoints in {path} cannot be read ({error.strerror})") from error
    # The first line may be cut, and the last one is just being written.
    whole = lines[1 if size > TAIL_BYTES else 0 : -1]
    return list(parse(whole, str(path), AuditKeys(settings.state_dir).public()))[::-1]
