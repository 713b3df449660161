"""Archives: events in Parquet files with a manifest that says what they are. They can be pruned and still be proven.

An archive is written before anything is deleted: all that a chain has up to its head, each file read back, and a
manifest last. The manifest has the hash of each file, the heads of the chains and the signed checkpoints of them. It
proves nothing by itself: what it says is compared with checkpoints that trusted keys signed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from proxy.audit.chain_reader import START, ChainedEvent, event_id
from proxy.audit.checkpoints import Signed
from proxy.core.event import Head
from proxy.core.event_columns import PoisonError, columns
from proxy.errors import AuditUnavailableError, ConfigError
from proxy.sinks.parquet_files import ParquetFile, ParquetFolder, decode
from proxy.sinks.role import SinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from proxy.audit.chain_reader import Position, StoreChains
    from proxy.audit.verify import Evidence
    from proxy.core.event import LogEntry

EVENTS = 100_000  # in a file at most
CHARACTERS = 64 << 20
MANIFEST = "manifest-"
LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Archived:
    """What was written: the manifest's name, how many files, events and bytes."""

    manifest: str
    files: int
    events: int
    bytes: int


async def write_archive(
    chains: StoreChains,
    heads: Sequence[Head],
    folder: ParquetFolder,
    now: float,
    checkpoints: Sequence[str] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> Archived:
    """Write what the store has of each chain up to its head. Raises AuditUnavailableError where it is not all there."""
    files: list[ParquetFile] = []
    try:
        for head in heads:
            files += await _write_writer(chains, head, folder, progress)
        made = {
            "version": 1,
            "made": now,
            "files": [asdict(one) for one in files],
            "heads": [asdict(head) for head in heads],
            "checkpoints": list(checkpoints),
        }
        text = json.dumps(made, indent=1).encode()
        name = f"{MANIFEST}{now:017.6f}-{sha256(text).hexdigest()[:12]}.json"
        folder.write(name, text)
    except SinkError as error:
        raise AuditUnavailableError(f"nothing was pruned: the archive could not be written: {error}") from error
    return Archived(name, len(files), sum(one.rows for one in files), sum(one.bytes for one in files))


async def _write_writer(
    chains: StoreChains, head: Head, folder: ParquetFolder, progress: Callable[[int], None]
) -> list[ParquetFile]:
    files: list[ParquetFile] = []
    rows: list[tuple[LogEntry, list[object]]] = []
    after, last, size = START, None, 0
    while events := await chains.page(head.writer, after):
        for event in events:
            entry = event.entry
            if entry.seq is None or entry.seq > head.seq:
                break
            rows.append((entry, _columns(entry)))
            last, size = entry, size + len(entry.body)
            if len(rows) >= EVENTS or size >= CHARACTERS:
                files.append(folder.write_events(rows))
                rows, size = [], 0
        progress(len(events))
        after = events[-1].position
        if (events[-1].entry.seq or 0) >= head.seq:
            break
    if rows:
        files.append(folder.write_events(rows))
    if last is None or (last.seq, last.chain) != (head.seq, head.hash):
        raise AuditUnavailableError(f"nothing was pruned: the store gives no events of {head.writer} up to {head.seq}")
    return files


def _columns(entry: LogEntry) -> list[object]:
    try:
        return columns(entry.body)
    except PoisonError as error:  # only with --force: it would not have verified
        raise AuditUnavailableError(f"nothing was pruned: event {entry.seq} cannot be archived: {error}") from error


class ArchivedChains:
    """The chains in an archive. Raises ConfigError where it cannot be read as one."""

    def __init__(self, folder: ParquetFolder) -> None:
        self._folder = folder
        self.manifests = _read_manifests(folder)
        self.heads_of: dict[str, Head] = {}
        self.files: dict[str, list[ParquetFile]] = {}
        for made in self.manifests:
            for one in made["heads"]:
                head = Head(**one)
                if head.seq > self.heads_of.get(head.writer, Head("", 0, "")).seq:
                    self.heads_of[head.writer] = head
            for one in made["files"]:
                self.files.setdefault(one["writer"], []).append(ParquetFile(**one))
        for writer, files in self.files.items():
            unique = {(one.path, one.sha256): one for one in files}
            self.files[writer] = sorted(unique.values(), key=lambda one: (one.first, one.last))
        self._read: tuple[str, list[ChainedEvent]] = ("", [])

    @property
    def lines(self) -> list[bytes]:
        """The checkpoints that the manifests carry; they count where a trusted key signed them."""
        return [str(line).encode() for made in self.manifests for line in made["checkpoints"]]

    async def heads(self) -> dict[str, Head | None]:
        return dict(self.heads_of)

    async def page(self, writer: str, after: Position) -> list[ChainedEvent]:
        """Return events behind a position. An event that two archives have is read from the first."""
        for file in self.files.get(writer, ()):
            if file.last < after[0] or (after[1] and file.last <= after[0]):
                continue
            found = [one for one in self._events(file) if one.position > after]
            if found:
                return found[:LIMIT]
        return []

    async def stored(self, writer: str) -> int:  # noqa: ARG002  an archive is no store
        return 0

    async def unchained(self) -> str | None:
        return None

    def _events(self, file: ParquetFile) -> list[ChainedEvent]:
        if self._read[0] != file.path:
            try:
                entries = decode(self._bytes(file))
            except SinkError as error:
                raise ConfigError(f"{self._folder.place}, {file.path}: {error}") from error
            self._read = file.path, [ChainedEvent(entry, event_id(entry.body)) for entry in entries]
        return self._read[1]

    def _bytes(self, file: ParquetFile) -> bytes:
        data = self._folder.read(file.path)
        if sha256(data).hexdigest() != file.sha256:
            raise SinkError("it is not the file of the manifest")
        return data

    def evidence(self, evidence: Evidence) -> tuple[Evidence, dict[str, Head]]:
        """Return what was signed of what the archive should have, and where its chains begin.

        What was signed as pruned may be missing in a store. In the archive it may not: it is where it went.
        """
        signed: dict[str, Signed] = {}
        anchors: dict[str, Head] = {}
        for writer, said in evidence.writers.items():
            first = min((one.first for one in self.files.get(writer, ())), default=1)
            last = max(self.heads_of[writer].seq if writer in self.heads_of else 0, said.pruned)
            links = {seq: link for seq, link in said.links.items() if first <= seq <= last}
            if last and (writer in self.files or said.pruned):
                signed[writer] = Signed(links, dict(said.rejected), 0, {}, said.conflict)
                if first > 1 and (before := said.links.get(first - 1)) is not None:
                    anchors[writer] = Head(writer, first - 1, before)
                elif first > 1:
                    signed[writer] = replace(signed[writer], pruned=first - 1)
        return replace(evidence, signed=signed, registry=None, strangers=frozenset()), anchors


def _read_manifests(folder: ParquetFolder) -> list[dict[str, Any]]:
    try:
        names = [name for name in folder.names() if name.startswith(MANIFEST) and name.endswith(".json")]
        found = [json.loads(folder.read(name)) for name in names]
    except (SinkError, ValueError) as error:
        raise ConfigError(f"{folder.place} is no archive: {error}") from error
    if not found or not all(_is_manifest(one) for one in found):
        raise ConfigError(f"{folder.place} is no archive: it has no manifest; `interlock audit archive` writes one")
    return found


def _is_manifest(made: Mapping[str, Any]) -> bool:
    try:
        return (
            made["version"] == 1
            and all(ParquetFile(**one).path for one in made["files"])
            and all(Head(**one).writer for one in made["heads"])
            and isinstance(made["checkpoints"], list)
        )
    except (TypeError, KeyError):
        return False
