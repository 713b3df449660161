"""The client of a transparency log: what it posts is taken, and every other answer is an error with its reason."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.audit.rekor_client import LogAwayError, RekorClient
from proxy.audit.rekor_entry import LogKey, check_entry
from proxy.audit.transparency import digest_of
from proxy.audit.transparency_feed import EntryKey
from tests.support.rekor_server import RekorServer, start_rekor


@pytest.fixture
def server() -> Iterator[RekorServer]:
    with start_rekor() as log:
        yield log


def test_what_is_posted_is_in_the_log_and_its_proof_holds(server: RekorServer, tmp_path: Path) -> None:
    client, key = RekorClient(server.url), EntryKey(tmp_path / "key.pem")
    for line in ("one", "two", "three"):
        name, entry = client.post(key.proposal(line))
        check_entry(entry, digest_of(line), LogKey.parse(server.pem))
        assert name == server.entry_id(entry["verification"]["inclusionProof"]["logIndex"])
    assert client.size() == 3
    assert client.public_key() == server.pem


def test_what_the_log_has_already_is_read_from_there(server: RekorServer, tmp_path: Path) -> None:
    client, key = RekorClient(server.url), EntryKey(tmp_path / "key.pem")
    first, second = client.post(key.proposal("one")), client.post(key.proposal("one"))
    assert first[0] == second[0]
    assert len(server.bodies) == 1
    check_entry(second[1], digest_of("one"), LogKey.parse(server.pem))


def test_the_log_refuses_what_another_key_signed(server: RekorServer, tmp_path: Path) -> None:
    """So the server of these tests checks what Rekor checks."""
    one, other = EntryKey(tmp_path / "one.pem").proposal("a"), EntryKey(tmp_path / "two.pem").proposal("a")
    one["spec"]["signature"]["content"] = other["spec"]["signature"]["content"]
    with pytest.raises(LogAwayError, match="answered 400: error processing entry"):
        RekorClient(server.url).post(one)


@pytest.mark.parametrize("status", [301, 404, 409, 429, 500])
def test_any_other_status_is_an_error(status: int, server: RekorServer, tmp_path: Path) -> None:
    server.status = status
    client = RekorClient(server.url)
    with pytest.raises(LogAwayError, match=f"answered {status}: away"):
        client.post(EntryKey(tmp_path / "k").proposal("a"))
    for ask in (client.size, client.public_key):
        with pytest.raises(LogAwayError, match=str(status)):
            ask()


@pytest.mark.parametrize("answer", ["[]", '"x"', 7])
def test_an_answer_that_is_no_entry_is_an_error(answer: object, server: RekorServer, tmp_path: Path) -> None:
    server.change = lambda _: answer
    with pytest.raises(LogAwayError, match="something else than one entry"):
        RekorClient(server.url).post(EntryKey(tmp_path / "k").proposal("a"))


def test_a_log_that_is_not_there_or_does_not_answer_is_an_error(server: RekorServer, tmp_path: Path) -> None:
    server.held = threading.Event()
    for client in (RekorClient("http://127.0.0.1:1"), RekorClient(server.url, timeout=0.05)):
        with pytest.raises(LogAwayError, match="does not answer"):
            client.post(EntryKey(tmp_path / "k").proposal("a"))


def test_a_path_before_the_api_is_kept(server: RekorServer) -> None:
    with pytest.raises(LogAwayError, match="answered 404"):
        RekorClient(f"{server.url}/rekor/").size()
