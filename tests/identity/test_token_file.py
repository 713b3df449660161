"""Names and their tokens, whoever's they are."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.identity.agents import AgentBook
from proxy.identity.operators import OperatorBook
from proxy.identity.token_file import TokenBook

type Open = Callable[[], TokenBook]


@pytest.fixture(params=[AgentBook, OperatorBook])
def new_book(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Open the book of one folder, as each process does."""
    return lambda: request.param(tmp_path)


def test_a_token_proves_its_agent_and_no_other(new_book: Open) -> None:
    book = new_book()
    token, other = book.add("bot"), book.add("other")
    assert token.startswith(book.prefix)
    assert book.verify("bot", token)
    for name, wrong in (
        ("bot", other),
        ("bot", ""),
        ("bot", token + "x"),
        ("nobody", token),
        ("", ""),
        ("bot", "\udcff"),
    ):
        assert not book.verify(name, wrong)


def test_a_token_tells_whose_it_is(new_book: Open) -> None:
    book = new_book()
    token, other = book.add("bot"), book.add("other")
    assert (book.holder(token), book.holder(other)) == ("bot", "other")
    for wrong in ("", book.prefix, token + "x", token[:-1], token.upper(), "\udcff", "bot"):
        assert book.holder(wrong) is None
    book.revoke("bot")
    assert book.holder(token) is None


def test_tokens_are_stored_as_hashes_for_the_owner_alone(new_book: Open) -> None:
    book = new_book()
    token = book.add("bot")
    assert token not in book.path.read_text()
    assert stat.S_IMODE(book.path.stat().st_mode) == 0o600


def test_a_change_by_another_process_is_seen_at_once(new_book: Open) -> None:
    running, command = new_book(), new_book()
    token = command.add("bot")
    assert running.verify("bot", token)
    command.revoke("bot")
    assert not running.verify("bot", token)
    assert not running.verify("bot", "")
    assert running.names() == {}


def test_names_come_with_when_they_were_added(new_book: Open) -> None:
    book = new_book()
    book.add("b")
    book.add("a.b-c_1")
    assert list(book.names()) == ["b", "a.b-c_1"]
    assert all(added > 1.7e9 for added in book.names().values())


@pytest.mark.parametrize("name", ["", "a b", "a:b", "-a", "a/b", "é", "x" * 65, "a\n", "[red]"])
def test_a_name_that_cannot_be_used_is_refused(name: str, new_book: Open) -> None:
    with pytest.raises(ConfigError, match="letters, digits"):
        new_book().add(name)


def test_a_name_that_is_taken_is_refused_and_its_token_stays(new_book: Open) -> None:
    book = new_book()
    token = book.add("bot")
    with pytest.raises(ConfigError, match=f"{book.role}s revoke bot"):
        book.add("bot")
    assert book.verify("bot", token)


def test_revoking_nobody_names_who_there_is(new_book: Open) -> None:
    book = new_book()
    with pytest.raises(ConfigError, match=f"known {book.role}s: none"):
        book.revoke("x")
    book.add("bot")
    with pytest.raises(ConfigError, match=f"'x'; known {book.role}s: bot"):
        book.revoke("x")


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"bot": 1}',
        b'{"bot": {}}',
        b'{"bot": {"token_sha256": "", "added": 1}}',
        b'{"bot": {"token_sha256": 5, "added": 1}}',
        json.dumps({"bot": {"token_sha256": "0" * 64, "added": "x"}}).encode(),
    ],
)
def test_a_file_of_another_form_is_an_error_and_never_a_pass(content: bytes, new_book: Open) -> None:
    book = new_book()
    book.path.write_bytes(content)
    for attempt in (
        lambda: book.verify("bot", ""),
        lambda: book.holder("x"),
        book.names,
        lambda: book.add("x"),
        lambda: book.revoke("bot"),
    ):
        with pytest.raises(ConfigError, match="restore it or delete it"):
            attempt()
    assert book.path.read_bytes() == content


def test_no_change_undoes_another_made_at_the_same_time(new_book: Open) -> None:
    with ThreadPoolExecutor(8) as pool:
        tokens = list(pool.map(lambda number: new_book().add(f"bot{number}"), range(16)))
    book = new_book()
    assert all(book.verify(f"bot{number}", token) for number, token in enumerate(tokens))
