"""Files of a policy as they are edited: what may be saved, and what is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proxy.console import policy_editor
from proxy.console.policy_editor import (
    MAX_TEXT,
    check_unchanged,
    digest_of,
    find_file,
    hidden_lines,
    keep_version,
    read_files,
    replace_text,
    versions,
)
from proxy.console.security import RefusedError

TEXT = "version: 1\ndefault: deny\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "policy" / "policy.yaml"
    made.parent.mkdir()
    made.write_text(TEXT)
    return made


def test_only_names_of_its_files_lead_anywhere(file: Path) -> None:
    (file.parent / "other.yml").write_text(TEXT)
    (file.parent / "note.txt").write_text("x")
    assert [one.name for one in read_files(file.parent)] == ["other.yml", "policy.yaml"]
    assert find_file(file.parent, "").name == "other.yml"
    for name in ("note.txt", "../policy.yaml", str(file), "policy.yaml\0", "POLICY.yaml"):
        with pytest.raises(RefusedError, match="no file"):
            find_file(file.parent, name)


def test_a_policy_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as refused:
        find_file(tmp_path / "none", "")
    assert refused.value.status == 503


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"\xff", "UTF-8"), (b"a\r\nb", "carriage returns"), (b"#" * (MAX_TEXT + 1), "more than"), (TEXT.encode(), "")],
)
def test_what_a_browser_would_change_or_not_take_is_not_saved(data: bytes, why: str, file: Path) -> None:
    file.write_bytes(data)
    hindrance = find_file(file, "").hindrance
    assert why in hindrance
    assert bool(why) == bool(hindrance)


def test_a_file_that_may_not_be_written_says_so(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may write everything, so the kernel's answer is replaced.
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != file.parent)
    assert "may not write" in find_file(file, "").hindrance


def test_a_file_is_replaced_as_a_whole_with_its_mode_and_where_it_is_linked_to(file: Path) -> None:
    file.chmod(0o640)
    link = file.parent.parent / "policy.yaml"
    link.symlink_to(file)
    replace_text(find_file(link, ""), "version: 1\n")
    assert link.is_symlink()
    assert file.read_text() == "version: 1\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in file.parent.iterdir()] == ["policy.yaml"]


def test_a_change_by_somebody_else_is_not_lost(file: Path) -> None:
    edited = find_file(file, "")
    file.write_text("version: 1\n# theirs\n")
    with pytest.raises(RefusedError, match="changed on disk"):
        replace_text(edited, "version: 1\n# ours\n")
    assert "theirs" in file.read_text()
    assert [one.name for one in file.parent.iterdir()] == ["policy.yaml"]
    with pytest.raises(RefusedError):
        check_unchanged(edited, "")
    check_unchanged(edited, digest_of(TEXT))


def test_versions_are_kept_newest_first_and_bounded(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_editor, "MAX_VERSIONS", 2)
    for number in range(4):
        file.write_text(f"{TEXT}# {number}\n")
        keep_version(tmp_path, find_file(file, ""), "ann", 1_763_000_000.0 + number)
    found = versions(tmp_path, find_file(file, ""))
    assert [one.text[-2] for one in found] == ["3", "2"]
    assert found[0].operator == "ann"
    for kept in tmp_path.glob(f"{policy_editor.HISTORY}/*/*.json"):
        assert kept.stat().st_mode & 0o777 == 0o600
        kept.write_text("damaged")
    assert versions(tmp_path, find_file(file, "")) == []


def test_lines_that_hide_something_are_named() -> None:
    assert hidden_lines("a\n\tb\nc\u202ed\ne\u200b\n") == [3, 4]
