"""Evidence of one call."""

from __future__ import annotations

from pathlib import Path

from proxy.audit.checkpoints import Checkpoint
from proxy.audit.signing_keys import AuditKeys
from proxy.console.evidence import evidence
from proxy.core.event import LogEntry, link, start

FIRST = link(start("w").hash, 1, "one")
SECOND = link(FIRST, 2, "two")


def head(seq: int, key: str, writer: str = "w") -> Checkpoint:
    return Checkpoint("head", writer, seq, "0" * 64, "1.000000", key)


def test_every_event_has_what_its_link_follows_from(tmp_path: Path) -> None:
    entries = [LogEntry("one", "w", 1, FIRST), LogEntry("two", "w", 2, SECOND), LogEntry("changed", "w", 2, SECOND)]
    made = evidence("c", entries, {("w", 1): FIRST}, [], [], 0.0)
    assert [one["link_follows"] for one in made["events"]] == [True, True, False]
    assert made["events"][1]["before"] == FIRST
    unknown = evidence("c", [LogEntry("two", "w", 2, SECOND), LogEntry("x")], {}, [], [], 0.0)
    assert [one["link_follows"] for one in unknown["events"]] == [None, None]


def test_the_first_checkpoint_behind_an_event_and_its_key_are_in_it(tmp_path: Path) -> None:
    keys = AuditKeys(tmp_path)
    key, _ = keys.signer()
    heads = [head(9, key), head(1, key), head(5, key), head(2, key, "other")]
    made = evidence("c", [LogEntry("two", "w", 2, SECOND), LogEntry("x", "w", 4, "c")], {}, heads, keys.public(), 0.0)
    assert [one["seq"] for one in made["checkpoints"]] == [5]
    assert "BEGIN PUBLIC KEY" in made["public_keys"][key]
    assert any("interlock audit verify" in line for line in made["how_to_verify"])
