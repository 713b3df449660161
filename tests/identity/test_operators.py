"""The first operator, and its token's file."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.identity.operators import FIRST, OperatorBook, read_token


def test_the_first_start_makes_an_operator_whose_token_only_the_owner_reads(tmp_path: Path) -> None:
    book = OperatorBook(tmp_path)
    book.ensure()
    assert list(book.names()) == [FIRST]
    assert book.holder(read_token(book.token_file)) == FIRST
    assert stat.S_IMODE(book.token_file.stat().st_mode) == 0o600
    assert read_token(book.token_file) not in book.path.read_text()


def test_a_later_start_changes_nothing(tmp_path: Path) -> None:
    OperatorBook(tmp_path).ensure()
    before = OperatorBook(tmp_path).path.read_bytes()
    OperatorBook(tmp_path).ensure()
    assert OperatorBook(tmp_path).path.read_bytes() == before


def test_a_start_that_broke_off_after_the_file_is_made_good_by_the_next(tmp_path: Path) -> None:
    book = OperatorBook(tmp_path)
    book.ensure()
    token = read_token(book.token_file)
    book.path.unlink()
    OperatorBook(tmp_path).ensure()
    assert book.holder(token) == FIRST


def test_a_token_file_of_another_form_is_never_taken_for_a_token(tmp_path: Path) -> None:
    book = OperatorBook(tmp_path)
    book.token_file.parent.mkdir()
    book.token_file.write_text("\n")
    with pytest.raises(ConfigError, match="no operator's token"):
        book.ensure()
    assert book.names() == {}


def test_where_an_operator_was_added_no_other_is_made(tmp_path: Path) -> None:
    book = OperatorBook(tmp_path)
    book.add("alice")
    book.ensure()
    assert list(book.names()) == ["alice"]
    assert not book.token_file.exists()


def test_a_revoked_first_operator_does_not_come_back_and_leaves_no_file(tmp_path: Path) -> None:
    book = OperatorBook(tmp_path)
    book.ensure()
    book.add("alice")
    book.revoke(FIRST)
    assert not book.token_file.exists()
    book.ensure()
    assert list(book.names()) == ["alice"]


def test_revoking_another_leaves_the_first_ones_file(tmp_path: Path) -> None:
    book = OperatorBook(tmp_path)
    book.ensure()
    book.add("alice")
    book.revoke("alice")
    assert book.holder(read_token(book.token_file)) == FIRST


def test_a_token_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone cannot be read.*--token-file"):
        read_token(tmp_path / "gone")
    (tmp_path / "odd").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="odd cannot be read"):
        read_token(tmp_path / "odd")
