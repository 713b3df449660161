"""`interlock audit receipt`: a file that anybody can check."""

from __future__ import annotations

import json
from pathlib import Path

from proxy.audit.signing_keys import AuditKeys
from tests.commands.audit.test_verify import to_store
from tests.commands.conftest import Run, complaint
from tests.support.receipt_script import verify_receipt
from tests.support.trail_fixture import sign, write


def test_a_call_has_a_receipt_once_it_is_in_the_store(run: Run, tmp_path: Path) -> None:
    state = tmp_path / "state"
    write(state, range(1, 4), call_id="01a1ecfe-0295-750d-a297-395744f00e50")
    sign(state)
    assert "no store yet" in complaint(run("audit", "receipt", "01a1ecfe-0295"))
    to_store(state)
    done = run("audit", "receipt", "01a1ecfe-0295")
    receipt = json.loads(done.stdout)
    assert len(verify_receipt.check(receipt, [key.raw() for key in AuditKeys(state).public()])) == 3
    assert "begins with" in complaint(run("audit", "receipt", "01ffffff-0000"))
    file = state / "checkpoints" / "checkpoints.jsonl"
    file.write_text(file.read_text().replace('"seq": 3', '"seq": 2'))
    assert "a checkpoint is bad" in complaint(run("audit", "receipt", "01a1ecfe-0295"))
