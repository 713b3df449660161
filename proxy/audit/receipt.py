"""Receipts: proof that the events of one call are in the trail, for somebody who has nothing else of it.

The events of a writer and a day (UTC) are the leaves of a Merkle tree: those from its first to its last of that day, by
number. A receipt has the texts of one call's events, for each the way to the root of its tree, and the signed roots.
Before a root is signed, its events are verified against the checkpoints before and behind them.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from proxy.audit.checkpoints import append_lines, read_lines
from proxy.audit.merkle import inclusion_proof, leaf_hash, root_hash
from proxy.core.event import Head, link, start
from proxy.errors import AuditUnavailableError, ConfigError
from proxy.store.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from proxy.audit.checkpoints import Signed
    from proxy.audit.event_store import Events
    from proxy.audit.signing_keys import AuditKeys, PublicKey
    from proxy.core.event import LogEntry

SQL = Queries("chain")
TREE_FILE = "checkpoints/trees.jsonl"  # below the state folder
PAGE = 5000
DAY = 86_400


@dataclass(frozen=True, slots=True)
class SignedTree:
    """The root over a writer's events of one day, from number `first` on."""

    writer: str
    day: str
    first: int
    size: int
    root: str
    time: str
    key: str
    signature: str = ""

    def text(self) -> bytes:
        said = f"{self.writer} {self.day} {self.first} {self.size} {self.root} {self.time} {self.key}"
        return f"interlock-tree 1 {said}".encode()


@dataclass(slots=True)
class _Day:
    tree: SignedTree
    leaves: list[bytes] = field(repr=False)


class Receipts:
    """Makes receipts from one store, with the keys of one state folder."""

    def __init__(
        self, store: Events, signed: Mapping[str, Signed], keys: AuditKeys, state_dir: Path, now: float
    ) -> None:
        self._database = store.database
        self._signed = signed
        self._keys = keys
        self._file = state_dir / TREE_FILE
        self._now = now
        self._days: dict[tuple[str, str], _Day] = {}

    async def of_call(self, call_id: str, found: Sequence[tuple[LogEntry, dict[str, Any]]]) -> dict[str, Any]:
        """Return the receipt of a call, whose events are `found`, as JSON.

        Raises AuditUnavailableError where an event is not in the store yet, is not covered by a checkpoint, or where
        the trail around it is not what was signed; ConfigError where there is no key to sign with.
        """
        if not self._keys.can_sign():
            raise ConfigError("this state folder has no key that signs; make receipts where a proxy runs")
        events, trees = [], list[SignedTree]()
        for entry, event in found:
            if entry.writer is None or entry.seq is None:
                raise AuditUnavailableError(f"event {event['event_id']} belongs to no chain, so nothing proves it")
            day = await self._day(entry.writer, float(event["time"]))
            index = entry.seq - day.tree.first
            if not 0 <= index < day.tree.size or leaf_hash(entry.body.encode()) != day.leaves[index]:
                missing = "is not in the store, or no checkpoint covers it yet; try again in a minute"
                raise AuditUnavailableError(f"event {event['event_id']} {missing}")
            if day.tree not in trees:
                trees.append(day.tree)
            proof = [one.hex() for one in inclusion_proof(day.leaves, index)]
            events.append(
                {"seq": entry.seq, "index": index, "tree": trees.index(day.tree), "proof": proof, "body": entry.body}
            )
        keys = {key.key_id: base64.b64encode(key.raw()).decode() for key in self._keys.public()}
        used = {tree.key: keys[tree.key] for tree in trees}
        return {
            "version": 1,
            "kind": "interlock-receipt",
            "call_id": call_id,
            "events": events,
            "trees": [asdict(tree) for tree in trees],
            "keys": used,
        }

    async def _day(self, writer: str, time: float) -> _Day:
        day = dt.datetime.fromtimestamp(time, dt.UTC).date().isoformat()
        if (writer, day) not in self._days:
            since = dt.datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp()
            ((first, last),) = await self._database.fetch(SQL["numbers_of_day"], writer, since, since + DAY)
            covered = min(last or 0, self._signed[writer].last if writer in self._signed else 0)
            leaves = await self._verified_leaves(writer, first, covered) if first and first <= covered else []
            self._days[writer, day] = _Day(self._sign(writer, day, first or 1, leaves), leaves)
        return self._days[writer, day]

    async def _verified_leaves(self, writer: str, first: int, last: int) -> list[bytes]:
        """Return the leaves of events `first` to `last`, once they follow from one signature and lead to another."""
        signed = self._signed[writer]
        begin = max((seq for seq in signed.links if seq < first), default=0)
        end = min(seq for seq in signed.links if seq >= last)
        head = Head(writer, begin, signed.links[begin]) if begin else start(writer)
        leaves: list[bytes] = []
        while head.seq < end:
            rows = await self._database.fetch(SQL["chain_texts"], writer, head.seq, min(end, head.seq + PAGE))
            for seq, body, chain in rows:
                made = link(head.hash, seq, body)
                if seq != head.seq + 1 or made != chain or signed.links.get(seq, made) != made:
                    raise _bad(writer, head.seq + 1)
                head = Head(writer, seq, made)
                if first <= seq <= last:
                    leaves.append(leaf_hash(body.encode()))
            if not rows:
                raise _bad(writer, head.seq + 1)
        return leaves

    def _sign(self, writer: str, day: str, first: int, leaves: Sequence[bytes]) -> SignedTree:
        """Return the signed tree over leaves: the one that was signed before, where there is one of this size."""
        root = root_hash(leaves).hex()
        for old in read_trees(self._file, self._keys.public()):
            if (old.writer, old.day, old.first, old.size) == (writer, day, first, len(leaves)):
                if old.root != root:
                    raise _bad(writer, first)
                return old
        key_id, key = self._keys.signer()
        tree = SignedTree(writer, day, first, len(leaves), root, f"{self._now:.6f}", key_id)
        tree = replace(tree, signature=base64.b64encode(key.sign(tree.text())).decode())
        append_lines(self._file, [json.dumps(asdict(tree))])
        return tree


def read_trees(path: Path, keys: Sequence[PublicKey]) -> list[SignedTree]:
    """Return the trees in a file whose signatures are right. Raises ConfigError where it cannot be read."""
    known, found = {key.key_id: key for key in keys}, []
    for line in read_lines(path) if path.exists() else ():
        try:
            tree = SignedTree(**json.loads(line))
            good = known[tree.key].verifies(base64.b64decode(tree.signature, validate=True), tree.text())
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if good:
            found.append(tree)
    return found


def _bad(writer: str, seq: int) -> AuditUnavailableError:
    return AuditUnavailableError(
        f"there is no receipt: event {seq} of writer {writer} is not what was signed; run `interlock audit verify`"
    )
