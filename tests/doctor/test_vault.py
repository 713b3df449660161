"""Credentials by reference: each way in which they may be unfit."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.doctor.findings import CheckResult
from proxy.doctor.vault import sources
from proxy.vault.placeholder import make
from proxy.vault.vault_file import Bindings, CommandSource, Entry, EnvSource, FileSource, Source, VaultFile


def found(tmp_path: Path, source: Source, *hosts: str) -> CheckResult:
    """Return what is said of one credential."""
    entry = Entry(placeholder=make("a"), source=source, bindings=Bindings(hosts=hosts), added=1.0)
    VaultFile(tmp_path).add("a", entry)
    (only,) = sources(tmp_path)
    return only


@pytest.mark.parametrize("source", [EnvSource(variable="X"), CommandSource(argv=("true",)), None])
def test_sources_that_can_be_used_are_well(tmp_path: Path, source: Source | None) -> None:
    (tmp_path / "secret").write_text("a value of some length")
    (tmp_path / "secret").chmod(0o600)
    told = found(tmp_path, source or FileSource(path=str(tmp_path / "secret")), "a.example")
    assert (told.state, told.said.partition(";")[0]) == ("ok", "1 credential")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (FileSource(path="/no/file"), "credential a: the file /no/file cannot be read"),
        (CommandSource(argv=("/no/program",)), "credential a: there is no program /no/program"),
    ],
)
def test_one_that_cannot_is_a_failure(tmp_path: Path, source: Source, said: str) -> None:
    told = found(tmp_path, source, "a.example")
    assert told.state == "fail"
    assert said in told.said


def test_one_that_is_bound_to_nothing_is_a_warning(tmp_path: Path) -> None:
    told = found(tmp_path, EnvSource(variable="X"))
    assert (told.state, told.mend) == ("warn", "`interlock vault bind a --host HOST`")


def test_no_command_is_run(tmp_path: Path) -> None:
    assert found(tmp_path, CommandSource(argv=("touch", str(tmp_path / "ran"))), "a.example").state == "ok"
    assert not (tmp_path / "ran").exists()


def test_a_damaged_file_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "vault.json").write_text("{")
    (only,) = sources(tmp_path)
    assert only.state == "fail"
