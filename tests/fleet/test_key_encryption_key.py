from __future__ import annotations

import base64
import shlex
import sys
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.fleet.key_encryption_key import KeyEncryptionKey, read_kek
from tests.support.fleet_fixture import KEK

KEY = bytes.fromhex(KEK)


def command(code: str) -> str:
    return f"command:{shlex.join([sys.executable, '-c', code])}"


def test_a_key_comes_from_a_file_a_variable_or_a_command(tmp_path: Path) -> None:
    file = tmp_path / "kek"
    file.write_text(f"{KEK}\n")
    file.chmod(0o600)
    text = base64.b64encode(KEY).decode()
    for source, environ in (
        (f"file:{file}", {}),
        ("env:MY_KEK", {"MY_KEK": text}),
        (command(f"print({text!r})"), {}),
    ):
        assert read_kek(source, environ).secret == KEY


def test_a_key_shows_itself_nowhere() -> None:
    key = KeyEncryptionKey(KEY)
    assert KEK not in repr(key)
    assert len(key.key_id) == 16
    assert key.derive("seal") not in (KEY, key.derive("other"))


WRONG = {
    "not there": ("file:/nowhere/kek", "cannot be read"),
    "empty": ("env:NOTHING", "no key in env NOTHING"),
    "short": ("env:SHORT", "no key of 32 random bytes"),
    "words": ("env:WORDS", "no key of 32 random bytes"),
    "zeros": ("env:ZEROS", "no key of 32 random bytes"),
    "no program": ("command:/nowhere/kms get", "'/nowhere/kms' of key_encryption_key failed"),
    "a program that fails": (
        command("import sys; print('s3cret'); sys.exit('no rights')"),
        "failed with 1: no rights",
    ),
    "another kind": ("vault:x", "write file:PATH"),
}


@pytest.mark.parametrize(("source", "told"), WRONG.values(), ids=WRONG)
def test_what_is_no_key_is_told_and_never_repeated(source: str, told: str) -> None:
    environ = {"SHORT": "ab" * 16, "WORDS": "correct horse battery staple", "ZEROS": "00" * 32}
    with pytest.raises(ConfigError, match=told) as failed:
        read_kek(source, environ)
    assert not any(text in str(failed.value) for text in ("s3cret", "correct", "abab", "0000"))


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "kek"
    file.write_text(KEK)
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="open to others"):
        read_kek(f"file:{file}", {})
