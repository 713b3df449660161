"""`interlock join`; what it takes over and refuses is in tests/fleet/test_join.py."""

from __future__ import annotations

import json
from pathlib import Path

from proxy.core.secret_variables import KEK_ENV
from tests.support.fleet_fixture import KEK, OTHER_KEK
from tests.support.harness import interlock_cli


def test_a_machine_joins_and_is_told_why_it_cannot(tmp_path: Path, database_url: str) -> None:
    words = [
        "--database-url",
        database_url,
        "--key-encryption-key",
        f"env:{KEK_ENV}",
        "--state-dir",
        str(tmp_path / "a"),
    ]
    made = interlock_cli("join", "--or-init", *words, env={KEK_ENV: KEK})
    assert (made.returncode, "joined the fleet" in made.stderr) == (0, True), made.stderr
    words = ["join", "--database-url", database_url, "--key-encryption-key", f"env:{KEK_ENV}"]
    wrong = interlock_cli(*words, "--state-dir", str(tmp_path / "b"), env={KEK_ENV: OTHER_KEK})
    assert (wrong.returncode, "wrong key-encryption key" in wrong.stderr) == (1, True)
    joined = interlock_cli(*words, "--state-dir", str(tmp_path / "b"), env={KEK_ENV: KEK})
    assert joined.returncode == 0, joined.stderr
    assert "Start it with `interlock up`" in joined.stderr
    again = interlock_cli(*words, "--state-dir", str(tmp_path / "b"), "--json", env={KEK_ENV: KEK})
    assert json.loads(again.stdout)["again"] is True
