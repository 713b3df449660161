"""Evidence of one call: its events exactly as recorded, their place in the chain, and what was signed of it. Pure."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from proxy.audit.export_form import exported
from proxy.core.event import link, start

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from proxy.audit.checkpoints import Checkpoint
    from proxy.audit.signing_keys import PublicKey
    from proxy.core.event import LogEntry

HOW: Final = """\
1. An event: its link is SHA-256(before, as bytes || seq as 8 bytes, big-endian || body as UTF-8), in hex. Compute it
   from before, seq and body, and compare it with chain: nothing in body was changed since the link was made.
2. A checkpoint: its signature is Ed25519, in base64, over the text "interlock-checkpoint 1 KIND WRITER SEQ HASH TIME
   KEY" with its fields. Check it with the public key of that id: the chain had come to SEQ, with this HASH.
3. From an event to the checkpoint behind it: where both have the same seq, hash and chain are equal. Otherwise the
   links between them are needed, which hold other calls: run "interlock audit verify" on the trail, or on a whole
   export of it, with this checkpoint.
"""


def evidence(
    call_id: str,
    entries: Sequence[LogEntry],
    before: Mapping[tuple[str, int], str],
    checkpoints: Iterable[Checkpoint],
    keys: Iterable[PublicKey],
    now: float,
) -> dict[str, Any]:
    """Return the bundle. `before` has the link before each event, by writer and number, where it is known."""
    events = [_event(entry, before) for entry in entries]
    chosen = _covering(entries, checkpoints)
    used = {checkpoint.key for checkpoint in chosen}
    return {
        "format": "interlock-evidence 1",
        "call_id": call_id,
        "made_at": dt.datetime.fromtimestamp(now, dt.UTC).isoformat(),
        "events": events,
        "checkpoints": [asdict(checkpoint) for checkpoint in chosen],
        "public_keys": {key.key_id: key.pem().decode() for key in keys if key.key_id in used},
        "how_to_verify": HOW.splitlines(),
    }


def _event(entry: LogEntry, before: Mapping[tuple[str, int], str]) -> dict[str, Any]:
    known = None
    if entry.writer is not None and entry.seq is not None:
        known = start(entry.writer).hash if entry.seq == 1 else before.get((entry.writer, entry.seq - 1))
    follows = None
    if known is not None and entry.seq is not None:
        follows = link(known, entry.seq, entry.body) == entry.chain
    return {**exported(entry), "before": known, "link_follows": follows}


def _covering(entries: Sequence[LogEntry], checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Return for each event the first checkpoint of its writer at it or behind it."""
    heads = sorted((one for one in checkpoints if one.kind == "head"), key=lambda one: one.seq)
    chosen: dict[Checkpoint, None] = {}
    for entry in entries:
        found = next((one for one in heads if one.writer == entry.writer and one.seq >= (entry.seq or 0)), None)
        if found is not None:
            chosen[found] = None
    return list(chosen)
