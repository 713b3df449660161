"""The halts of one machine: nothing that was halted is ever dropped by accident."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.core.halts import Halt, HaltList
from proxy.errors import ConfigError
from proxy.store.halt_file import BY_HAND, MIRROR, HaltFile

ONE, TWO = Halt("h1", "why", "olga", 1.0, agent="bot"), Halt("h2", "all", "otto", 2.0, cut=True)


def ids(file: HaltFile) -> list[str]:
    return [halt.halt_id for halt in file.in_force()]


def test_without_files_nothing_is_halted(tmp_path: Path) -> None:
    file = HaltFile(tmp_path)
    assert file.in_force() == ()
    assert file.stamp() == (None, None)


def test_the_stores_list_is_taken_over_and_outlives_the_process(tmp_path: Path) -> None:
    assert HaltFile(tmp_path).learn(HaltList("s", 1, (ONE,)))
    assert not HaltFile(tmp_path).learn(HaltList("s", 1, (ONE,)))
    assert HaltFile(tmp_path).in_force() == (ONE,)
    assert HaltFile(tmp_path).learn(HaltList("s", 2, ()))
    assert HaltFile(tmp_path).in_force() == ()


def test_an_older_list_drops_nothing(tmp_path: Path) -> None:
    file = HaltFile(tmp_path)
    file.learn(HaltList("s", 5, (ONE,)))
    assert not file.learn(HaltList("s", 4, ()))
    assert file.learn(HaltList("s", 4, (TWO,)))
    assert ids(file) == ["h1", "h2"]
    file.learn(HaltList("s", 5, (ONE,)))
    assert ids(file) == ["h1"]


def test_another_store_drops_nothing_and_gets_what_the_one_before_had(tmp_path: Path) -> None:
    file = HaltFile(tmp_path)
    file.learn(HaltList("s", 5, (ONE,)))
    file.learn(HaltList("", 0, ()))
    assert ids(file) == ["h1"]
    assert file.read().own == (ONE,)
    file.learn(HaltList("new", 1, (ONE,)))
    assert (ids(file), file.read().own) == (["h1"], ())


def test_what_the_store_has_not_got_yet_stays_until_it_has(tmp_path: Path) -> None:
    file = HaltFile(tmp_path)
    file.add(TWO)
    file.learn(HaltList("s", 1, ()))
    assert ids(file) == ["h2"]
    file.learn(HaltList("s", 2, (TWO,)))
    assert (ids(file), file.read().own) == (["h2"], ())
    file.remove({"h2"})
    assert ids(file) == []


def test_a_file_made_by_hand_halts_everything(tmp_path: Path) -> None:
    file, before = HaltFile(tmp_path), HaltFile(tmp_path).stamp()
    (tmp_path / BY_HAND).write_text("breach\n")
    assert file.stamp() != before
    (halt,) = file.in_force()
    assert (halt.reason, halt.scope, halt.origin) == ("breach", "everything", "file")
    (tmp_path / BY_HAND).write_bytes(b"")
    assert len(file.in_force()) == 1
    file.remove_by_hand()
    assert file.in_force() == ()
    (tmp_path / BY_HAND).mkdir()
    assert len(file.in_force()) == 1


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"store_id": "s"}', '{"store_id":"s","generation":1,"halts":[{}],"own":[]}']
)
def test_a_file_that_cannot_be_read_is_an_error_and_not_no_halts(tmp_path: Path, content: str) -> None:
    (tmp_path / MIRROR).write_text(content)
    with pytest.raises(ConfigError, match=r"halts\.json"):
        HaltFile(tmp_path).in_force()
    with pytest.raises(ConfigError):
        HaltFile(tmp_path).learn(HaltList("s", 1, ()))
