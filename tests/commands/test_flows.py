"""`interlock flows`: what it shows of marks, and that it records what it clears."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from typer.testing import CliRunner

from proxy.commands.command_tree import app
from proxy.core.flows import Mark
from proxy.store.flow_store import FlowMarks
from proxy.store.open_store import open_database


def put(folder: Path, **fields: object) -> None:
    now = time.time()
    named = {"agent": "bot", "call_id": "c1", "server": "wiki", "tool": "read", "labels": ("private",)}
    mark = Mark(**{**named, "at": now, "expires_at": now + 7300, "shingles": b"x" * 24, "values": b"y" * 16, **fields})  # type: ignore[arg-type]
    database = open_database(None, folder, in_thread=False)
    asyncio.run(FlowMarks(database).add([mark]))
    asyncio.run(database.close())


def run(folder: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["flows", *words, "--state-dir", str(folder)])
    assert done.exit_code == 0, done.output
    return done.output


def test_live_labels_are_shown_with_their_source(tmp_path: Path) -> None:
    put(tmp_path)
    put(tmp_path, call_id="c2", labels=("#123",), expires_at=time.time() + 59, complete=False)
    shown = run(tmp_path, "show", "bot")
    assert "private" in shown
    assert "2 h 1 min" in shown
    first, second = map(json.loads, run(tmp_path, "show", "--json").splitlines())
    assert (first["audit_id"], first["labels"], first["complete"]) == ("c1", ["private"], True)
    assert second["labels"] == ["(a call that a rule asks about)"]


def test_clearing_is_recorded_and_needs_a_reason(tmp_path: Path) -> None:
    put(tmp_path)
    assert CliRunner().invoke(app, ["flows", "clear", "bot", "--state-dir", str(tmp_path)]).exit_code == 2
    run(tmp_path, "clear", "bot", "--label", "other", "--reason", "no")
    assert json.loads(run(tmp_path, "show", "--json"))
    run(tmp_path, "clear", "bot", "--reason", "checked")
    assert run(tmp_path, "show", "--json") == ""
