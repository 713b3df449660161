"""Checkpoints: what is signed, and that nothing else is taken for it."""

from __future__ import annotations

import base64
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from proxy.audit.checkpoints import Checkpoint, append, read, sign
from proxy.audit.signing_keys import AuditKeys
from proxy.core.event import Head
from proxy.errors import ConfigError

HEAD = Head("w1", 7, "ab" * 32)


def made(state_dir: Path, **changes: Any) -> str:
    """Return the line of a signed checkpoint, with fields changed afterwards."""
    return json.dumps(json.loads(sign(AuditKeys(state_dir), "head", HEAD, 5.25).line()) | changes)


def found(state_dir: Path, *lines: str) -> list[Checkpoint | str]:
    file = state_dir / "c.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))
    return list(read(file, AuditKeys(state_dir).public()))


def test_what_is_signed_is_the_text_that_the_documentation_says(tmp_path: Path) -> None:
    checkpoint = sign(AuditKeys(tmp_path), "pruned", HEAD, 5.25)
    (key,) = AuditKeys(tmp_path).public()
    text = f"interlock-checkpoint 1 pruned w1 7 {'ab' * 32} 5.250000 {key.key_id}"
    assert key.verifies(base64.b64decode(checkpoint.signature), text.encode())


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    keys, file = AuditKeys(tmp_path), tmp_path / "deep" / "c.jsonl"
    first, second = sign(keys, "head", HEAD, 1.0), sign(keys, "rejected", HEAD, 2.0)
    append(file, [first])
    keys.rotate()
    third = sign(keys, "head", HEAD, 3.0)
    append(file, [second, third])
    assert list(read(file, AuditKeys(tmp_path).public())) == [first, second, third]
    assert third.key != first.key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "pruned"},
        {"writer": "w2"},
        {"seq": 8},
        {"hash": "cd" * 32},
        {"time": "5.250001"},
        {"signature": base64.b64encode(bytes(64)).decode()},
        {"signature": ""},
        {"signature": "nonsense"},
    ],
    ids=lambda changes: f"{changes}"[:30],
)
def test_no_part_can_be_changed(changes: dict[str, Any], tmp_path: Path) -> None:
    good = made(tmp_path)
    one, other = found(tmp_path, good, made(tmp_path, **changes))
    assert isinstance(one, Checkpoint)
    assert isinstance(other, str)
    assert "line 2" in other


@pytest.mark.parametrize(
    "changes",
    [{"version": 2}, {"seq": "7"}, {"seq": True}, {"seq": -1}, {"writer": "a b"}, {"extra": 1}, {"kind": "other"}],
    ids=str,
)
def test_another_form_is_no_checkpoint(changes: dict[str, Any], tmp_path: Path) -> None:
    (told,) = found(tmp_path, made(tmp_path, **changes))
    assert isinstance(told, str)


@pytest.mark.parametrize("line", ["nonsense", "[]", "7", "{}", '"x"', "[" * 10_000])
def test_a_line_that_is_none_is_told(line: str, tmp_path: Path) -> None:
    sign(AuditKeys(tmp_path), "head", HEAD, 1.0)
    (told,) = found(tmp_path, line)
    assert isinstance(told, str)


def test_a_key_that_is_not_known_is_told(tmp_path: Path) -> None:
    stranger = sign(AuditKeys(tmp_path / "stranger"), "head", HEAD, 1.0).line()
    AuditKeys(tmp_path).signer()
    (told,) = found(tmp_path, stranger)
    assert isinstance(told, str)
    assert "not known" in told


def test_a_line_that_is_being_written_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    append(file, [sign(AuditKeys(tmp_path), "head", HEAD, 1.0)])
    whole = file.read_bytes()
    file.write_bytes(whole + b"\n" + whole[:40])
    assert len(list(read(file, AuditKeys(tmp_path).public()))) == 1


def test_what_a_crash_left_of_a_line_spoils_none(tmp_path: Path) -> None:
    file, made = tmp_path / "c.jsonl", sign(AuditKeys(tmp_path), "head", Head("w", 1, "a" * 64), 1.0)
    for torn in ("", made.line()[:40], "x" * 3000):
        with file.open("a") as end:
            end.write(torn)
        append(file, [made])
    assert list(read(file, AuditKeys(tmp_path).public())) == [made] * 3


def test_what_a_full_disk_does_not_take_whole_it_does_not_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, made = tmp_path / "c.jsonl", sign(AuditKeys(tmp_path), "head", Head("w", 1, "a" * 64), 1.0)
    append(file, [made])
    before, real = file.read_bytes(), os.write

    def full(handle: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data[:-50])

    with monkeypatch.context() as patch:
        patch.setattr("os.write", full)
        with pytest.raises(OSError, match="No space"):
            append(file, [made])
    assert file.read_bytes() == before


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        list(read(tmp_path / "none", []))
