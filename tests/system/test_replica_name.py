"""The name of a replica."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from proxy.system.replica_name import replica_name


def test_a_folder_keeps_its_name_and_no_other_has_it(tmp_path: Path) -> None:
    name = replica_name(tmp_path / "a")
    assert name == replica_name(tmp_path / "a") != replica_name(tmp_path / "b")
    assert (tmp_path / "a" / "replica").stat().st_mode & 0o077 == 0


def test_processes_that_start_together_have_one_name(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: replica_name(tmp_path), range(32)))) == 1
