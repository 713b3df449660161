"""Receipts: what one proves by itself, and what cannot get one."""

from __future__ import annotations

import ast
import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from proxy.audit.event_store import Events
from proxy.audit.receipt import TREE_FILE, Receipts, read_trees
from proxy.audit.signing_keys import AuditKeys
from proxy.core.event import LogEntry
from proxy.errors import AuditUnavailableError, ConfigError
from tests.support.receipt_script import SCRIPT, verify_receipt
from tests.support.trail_fixture import execute, move, sign, signed, write

DAY = 86_400


async def make(state_dir: Path, events: Events, call_id: str = "c1") -> dict[str, Any]:
    found: list[tuple[LogEntry, dict[str, Any]]] = [(one, json.loads(one.body)) for one in await events.find(call_id)]
    made = Receipts(events, signed(state_dir), AuditKeys(state_dir), state_dir, 5.0)
    return json.loads(json.dumps(await made.of_call(call_id, found)))


@pytest.fixture
async def trail(tmp_path: Path, events: Events) -> None:
    """A call over midnight among events of three days, with a checkpoint in the middle."""
    write(tmp_path, [1, 2, 3])
    write(tmp_path, [4], call_id="c1")
    sign(tmp_path)
    write(tmp_path, [DAY, DAY + 1], call_id="c1")
    write(tmp_path, [DAY + 2, 2 * DAY])
    sign(tmp_path)
    await move(tmp_path, events)


def test_the_script_is_short_and_needs_nothing_of_ours() -> None:
    text = SCRIPT.read_text()
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module or "")])
    }
    assert len(text.splitlines()) < 200
    assert imported <= sys.stdlib_module_names


@pytest.mark.usefixtures("trail")
async def test_a_receipt_is_good_without_anything_of_ours(tmp_path: Path, events: Events) -> None:
    receipt = await make(tmp_path, events)
    assert [(one["seq"], one["tree"]) for one in receipt["events"]] == [(4, 0), (5, 1), (6, 1)]
    assert [tree["size"] for tree in receipt["trees"]] == [4, 3]
    file, (key,) = tmp_path / "receipt.json", (tmp_path / "keys" / "audit-public").iterdir()
    file.write_text(json.dumps(receipt))

    def check(*more: str) -> int:
        program = [sys.executable, "-I", str(SCRIPT), str(file), *more]
        return subprocess.run(program, capture_output=True, timeout=60, check=False).returncode

    assert (check("--public-key", str(key)), check()) == (0, 3)
    file.write_text(json.dumps(receipt).replace("deny", "none"))
    assert check("--public-key", str(key)) == 1
    again = await make(tmp_path, events)
    assert again == receipt, "a root is signed once"


def forged_tree(receipt: dict[str, Any]) -> None:
    """Another root, signed by a key of one's own under the same name."""
    own = Ed25519PrivateKey.generate()
    tree = receipt["trees"][0]
    fields = (tree[name] for name in ("writer", "day", "first", "size", "root", "time", "key"))
    tree["signature"] = verify_receipt.base64.b64encode(
        own.sign(("interlock-tree 1 " + " ".join(map(str, fields))).encode())
    ).decode()
    receipt["keys"][tree["key"]] = verify_receipt.base64.b64encode(own.public_key().public_bytes_raw()).decode()


TAMPERINGS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a text": lambda r: r["events"][0].update(body=r["events"][0]["body"].replace("deny", "none")),
    "the call": lambda r: r.update(call_id="c2"),
    "a number": lambda r: r["events"][0].update(seq=5),
    "an index": lambda r: r["events"][0].update(index=1),
    "an index below": lambda r: r["events"][0].update(index=-1),
    "a size": lambda r: r["trees"][0].update(size=5),
    "a writer": lambda r: r["trees"][0].update(writer="other"),
    "fields shifted": lambda r: r["trees"][0].update(writer=r["trees"][0]["writer"] + " x"),
    "a day": lambda r: r["trees"][0].update(day="2026-01-01"),
    "a proof cut": lambda r: r["events"][0]["proof"].pop(),
    "a proof longer": lambda r: r["events"][0]["proof"].append("00" * 32),
    "another tree": lambda r: r["events"][0].update(tree=1),
    "no events": lambda r: r.update(events=[]),
    "a signature": lambda r: r["trees"][0].update(signature=r["trees"][1]["signature"]),
    "a signature of another key": forged_tree,
}


@pytest.mark.usefixtures("trail")
async def test_a_receipt_that_was_changed_proves_nothing(tmp_path: Path, events: Events) -> None:
    receipt = await make(tmp_path, events)
    trusted = [key.raw() for key in AuditKeys(tmp_path).public()]
    assert len(verify_receipt.check(receipt, trusted)) == 3
    for what, change in TAMPERINGS.items():
        changed = copy.deepcopy(receipt)
        change(changed)
        with pytest.raises((verify_receipt.BadReceiptError, KeyError, ValueError, IndexError)):
            pytest.fail(f"{what} passes") if verify_receipt.check(changed, trusted) else None


def test_signatures_are_checked_as_ed25519_does() -> None:
    for number in range(4):
        key, text = Ed25519PrivateKey.generate(), b"x" * number
        public, signature = key.public_key().public_bytes_raw(), key.sign(text)
        assert verify_receipt.signature_fits(public, signature, text)
        assert not verify_receipt.signature_fits(public, signature, text + b"y")
        high = (int.from_bytes(signature[32:], "little") + verify_receipt.ORDER).to_bytes(32, "little")
        assert not verify_receipt.signature_fits(public, signature[:32] + high, text), "another spelling of the same"


@pytest.mark.usefixtures("trail")
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET body = replace(body, 'deny', 'none') WHERE seq = 2",
        "DELETE FROM events WHERE seq = 3",
        "UPDATE events SET chain = lower('00') WHERE seq = 4",
    ],
)
async def test_a_trail_that_is_not_what_was_signed_gives_no_receipt(
    change: str, tmp_path: Path, events: Events
) -> None:
    await execute(events, change)
    with pytest.raises(AuditUnavailableError, match="is not what was signed; run `interlock audit verify`"):
        await make(tmp_path, events)


@pytest.mark.usefixtures("trail")
async def test_a_root_that_was_signed_before_must_be_the_same(tmp_path: Path, events: Events) -> None:
    await make(tmp_path, events)
    file = tmp_path / TREE_FILE
    assert len(read_trees(file, AuditKeys(tmp_path).public())) == 2
    file.write_text(file.read_text().replace('"size": 4', '"size": 3') + "no tree\n")
    assert len(read_trees(file, AuditKeys(tmp_path).public())) == 1


async def test_a_call_that_no_checkpoint_covers_has_no_receipt(tmp_path: Path, events: Events) -> None:
    head = write(tmp_path, [1], call_id="c1")
    await move(tmp_path, events)
    (tmp_path / "checkpoints" / "checkpoints.jsonl").unlink()
    with pytest.raises(AuditUnavailableError, match="no checkpoint covers it yet"):
        await make(tmp_path, events)
    assert head.seq == 1
    (tmp_path / "keys" / "audit-signing.pem").unlink()
    with pytest.raises(ConfigError, match="no key that signs"):
        await make(tmp_path, events)
