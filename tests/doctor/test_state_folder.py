"""The state folder: each way in which it may be unfit."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from proxy.audit.local_log import LOG_FILE
from proxy.doctor import state_folder
from proxy.doctor.findings import CheckResult
from proxy.identity.ca import Authority
from tests.support.trail_fixture import sign, write


def one(found: Iterable[CheckResult]) -> CheckResult:
    (only,) = found
    return only


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "state"
    path.mkdir(mode=0o755)
    Authority(path).ensure()
    write(path, [1])
    sign(path)
    return path


def test_a_folder_as_we_make_it_is_well(state: Path) -> None:
    assert one(state_folder.permissions(state)).state == "ok"
    assert one(state_folder.ca(state)).state == "ok"
    assert one(state_folder.disk_space(state, 1)).state == "ok"
    assert state_folder.newest_file(state) == (state / LOG_FILE).stat().st_mtime


def test_what_others_may_read_or_write_is_told(state: Path, tmp_path: Path) -> None:
    key = Authority(state).key_file
    key.chmod(0o644)
    (state / LOG_FILE).parent.chmod(0o755)
    (state / LOG_FILE).chmod(0o660)
    found = {found.mend for found in state_folder.permissions(state)}
    assert found == {f"chmod go-rwx {key}", f"chmod go-rwx {state / LOG_FILE}"}
    state.chmod(0o700)
    assert one(state_folder.permissions(state)).state == "ok", "nobody else gets there"
    state.chmod(0o777)
    assert one(state_folder.permissions(state)).mend == f"chmod go-w {state}"
    assert one(state_folder.permissions(tmp_path / "none")).state == "warn"
    assert one(state_folder.permissions(state / LOG_FILE)).state == "fail"


def test_a_folder_that_is_not_ours_is_told(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write anywhere
    assert "chown" in one(state_folder.permissions(state)).mend


def test_a_disk_that_is_full_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert one(state_folder.disk_space(tmp_path / "new" / "state", 1 << 60)).state == "warn"
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=1 << 20))
    assert one(state_folder.disk_space(tmp_path, 1)).state == "fail"
    monkeypatch.undo()
    files = list(os.statvfs(tmp_path))
    files[5], files[7] = 10, 3
    monkeypatch.setattr("os.statvfs", lambda _: os.statvfs_result(files))
    assert "only 3 more files" in one(state_folder.disk_space(tmp_path, 1)).said


def test_a_certificate_that_ends_or_is_spoilt_is_told(state: Path, tmp_path: Path) -> None:
    files = Authority(state)
    ends = files.look().not_valid_after_utc
    assert one(state_folder.ca(state, ends + dt.timedelta(days=1))).state == "fail"
    assert one(state_folder.ca(state, ends - dt.timedelta(days=1))).state == "warn"
    files.bundle_file.write_text("")
    assert "does not contain it" in one(state_folder.ca(state)).said
    files.key_file.write_text("nonsense")
    assert one(state_folder.ca(state)).state == "fail"
    assert one(state_folder.ca(tmp_path / "none")).state == "warn"
    assert not (tmp_path / "none").exists()
