"""Pins on disk: whole or not at all, and none lost among several processes."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
from pathlib import Path

import pytest

from proxy.errors import PinsUnavailableError
from proxy.gate.tool_pins import Page, ServerPins, approve, print_tool, take_page
from proxy.store import pin_files as store_room
from proxy.store.pin_files import PinFiles


def see(store: PinFiles, server: str, *names: str) -> ServerPins | None:
    page = Page([(name, print_tool({"name": name, "description": name})) for name in names])
    return store.update(server, lambda known: take_page(known, page, adopt=True, now=1.0)[0])


def see_many(folder: Path, worker: int) -> None:
    for number in range(20):
        see(PinFiles(folder), "a:1", f"t{worker}-{number}")


def test_what_one_store_writes_another_reads(tmp_path: Path) -> None:
    see(PinFiles(tmp_path), "a:1", "x")
    see(PinFiles(tmp_path), "b:2", "y")
    store = PinFiles(tmp_path)
    assert store.servers() == ["a:1", "b:2"]
    known = store.read("a:1")
    assert known is not None
    assert set(known.tools) == {"x"}
    assert store.read("c:3") is None


def test_a_change_by_somebody_else_is_seen_at_the_next_look(tmp_path: Path) -> None:
    mine, theirs = PinFiles(tmp_path), PinFiles(tmp_path)
    see(mine, "a:1", "x")
    theirs.update("a:1", lambda known: approve(known, None, 2.0))
    assert mine.approvals() == {"a:1": 1}
    theirs.update("a:1", lambda _: None)
    assert mine.read("a:1") is None


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=see_many, args=(tmp_path, worker)) for worker in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    known = PinFiles(tmp_path).read("a:1")
    assert known is not None
    assert set(known.tools) == {f"t{worker}-{number}" for worker in range(3) for number in range(20)}


def test_nothing_is_written_where_nothing_changed(tmp_path: Path) -> None:
    store = PinFiles(tmp_path)
    see(store, "a:1", "x")
    (file,) = store.folder.glob("*.json")
    before = file.stat().st_ino
    see(store, "a:1", "x")
    assert file.stat().st_ino == before


def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    store = PinFiles(tmp_path)
    see(store, "a:1", "x")
    (file,) = store.folder.glob("*.json")
    assert (file.stat().st_mode & 0o777, store.folder.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"server": "a:1"}', b"\xff"])
def test_a_file_that_cannot_be_read_is_an_error_and_not_an_unknown_server(tmp_path: Path, content: bytes) -> None:
    store = PinFiles(tmp_path)
    see(store, "a:1", "x")
    (file,) = store.folder.glob("*.json")
    file.write_bytes(content)
    with pytest.raises(PinsUnavailableError, match=r"cannot be read .*; restore it"):
        store.read("a:1")
    with pytest.raises(PinsUnavailableError):
        see(store, "a:1", "y")
    assert file.read_bytes() == content


def test_a_file_of_another_server_is_refused(tmp_path: Path) -> None:
    store = PinFiles(tmp_path)
    see(store, "a:1", "x")
    (file,) = store.folder.glob("*.json")
    value = json.loads(file.read_bytes())
    file.write_text(json.dumps({**value, "server": "evil:1"}))
    with pytest.raises(PinsUnavailableError, match="evil:1"):
        store.read("a:1")


def test_a_lock_that_is_never_given_back_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_room, "LOCK_SECONDS", 0.05)
    store = PinFiles(tmp_path)
    store.folder.mkdir()
    holder = os.open(store.folder / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(PinsUnavailableError, match="keeps the pins locked"):
            see(store, "a:1", "x")
    finally:
        os.close(holder)
    assert see(store, "a:1", "x") is not None


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PinFiles(tmp_path)
    see(store, "a:1", "x")
    monkeypatch.setattr(store_room, "MAX_SERVERS", 1)
    with pytest.raises(PinsUnavailableError, match="more than 1 servers"):
        see(store, "b:1", "x")
    monkeypatch.setattr(store_room, "MAX_BYTES", 100)
    with pytest.raises(PinsUnavailableError, match="more than 100 bytes"):
        see(store, "a:1", "y")


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "pins").write_text("in the way")
    with pytest.raises(PinsUnavailableError):
        see(PinFiles(tmp_path), "a:1", "x")
