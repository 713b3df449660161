"""The file of passkeys."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.console.passkey_file import PasskeyFile
from proxy.errors import ConfigError

ONE = {
    "operator": "ann",
    "stamp": "1.0",
    "label": "x",
    "rp_id": "localhost",
    "public_key": "AA",
    "count": 0,
    "added": 1,
}


def test_passkeys_are_kept_private_and_belong_to_one_stamp(tmp_path: Path) -> None:
    file = PasskeyFile(tmp_path / "state")
    assert file.of("ann", "1.0") == {}
    with file.update() as entries:
        entries["id"] = dict(ONE)
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert list(file.of("ann", "1.0")) == ["id"]
    assert file.of("ann", "2.0") == file.of("bob", "1.0") == {}


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    file = PasskeyFile(tmp_path)
    with pytest.raises(KeyError), file.update() as entries:
        del entries["id"]
    assert file.of("ann", "1.0") == {}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"id": []}', '{"id": {"operator": "ann"}}'])
def test_what_is_no_file_of_passkeys_is_an_error(content: str, tmp_path: Path) -> None:
    file = PasskeyFile(tmp_path)
    file.path.write_text(content)
    with pytest.raises(ConfigError, match="delete it"):
        file.of("ann", "1.0")
