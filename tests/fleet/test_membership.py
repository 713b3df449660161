from __future__ import annotations

from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.fleet.membership import Membership, MembershipFile


def test_a_folder_belongs_to_no_fleet_or_to_one(tmp_path: Path) -> None:
    file = MembershipFile(tmp_path)
    assert file.read() is None
    file.write(Membership("f", "r", {"list:agents": 2}))
    assert file.read() == Membership("f", "r", {"list:agents": 2})


def test_what_is_known_never_gets_older(tmp_path: Path) -> None:
    file = MembershipFile(tmp_path)
    file.note("list:agents", 1)
    assert file.read() is None
    file.write(Membership("f", "r"))
    with file.locked():
        for generation in (2, 5, 3):
            file.note("list:agents", generation)
    known = file.read()
    assert known is not None
    assert known.generations == {"list:agents": 5}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"fleet_id": 1, "replica_id": 2, "generations": {"x": "y"}}'])
def test_a_damaged_file_is_told_and_taken_for_no_membership_of_none(tmp_path: Path, text: str) -> None:
    file = MembershipFile(tmp_path)
    file.path.write_text(text)
    with pytest.raises(ConfigError, match="cannot be read"):
        file.read()
