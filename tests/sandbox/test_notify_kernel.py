"""The kernel's side: what is copied from a program, and opening by path in one step."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from typing import TYPE_CHECKING

import pytest

from proxy.sandbox.notify_kernel import IN_ROOT, NO_MAGIC_LINKS, GoneError, Listener, Question, openat2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def ourselves() -> Question:
    return Question(1, os.getpid(), 0, ())


@pytest.fixture
def listener() -> Iterator[Listener]:
    reading, writing = os.pipe()
    yield Listener(reading)
    os.close(reading)
    os.close(writing)


def test_a_path_is_copied_up_to_its_end(listener: Listener) -> None:
    text = ctypes.create_string_buffer(b"/a/path")
    assert listener.read_path(ourselves(), ctypes.addressof(text)) == b"/a/path"


def test_a_path_at_the_end_of_mapped_memory_is_copied(listener: Listener) -> None:
    with mmap.mmap(-1, 2 * mmap.PAGESIZE) as memory:
        memory[mmap.PAGESIZE - 3 : mmap.PAGESIZE + 3] = b"/a/bc\0"
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        assert listener.read_path(ourselves(), address + mmap.PAGESIZE - 3) == b"/a/bc"


@pytest.mark.parametrize("address", [0, 8, 1 << 47])
def test_memory_that_is_not_there_is_a_fault(listener: Listener, address: int) -> None:
    with pytest.raises(OSError, match="Bad address"):
        listener.read_path(ourselves(), address)


def test_a_path_without_an_end_is_too_long(listener: Listener) -> None:
    text = ctypes.create_string_buffer(b"a" * 20_000)
    with pytest.raises(OSError, match=str(errno.ENAMETOOLONG)):
        listener.read_path(ourselves(), ctypes.addressof(text))


def test_who_does_not_wait_is_gone(listener: Listener) -> None:
    for act in (listener.check_waits, listener.answer):
        with pytest.raises(GoneError):
            act(ourselves())


def test_a_root_is_not_left_and_links_of_proc_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("inside")
    (tmp_path / "out").symlink_to("/etc")
    root = os.open(tmp_path, os.O_PATH)
    try:
        found = openat2(root, b"/../../a", os.O_RDONLY, IN_ROOT | NO_MAGIC_LINKS)
        assert os.read(found, 9) == b"inside"
        os.close(found)
        with pytest.raises(FileNotFoundError):
            openat2(root, b"/out/passwd", os.O_RDONLY, IN_ROOT | NO_MAGIC_LINKS)
        with pytest.raises(OSError, match="symbolic links"):
            openat2(root, b"/proc/self/root/etc", os.O_RDONLY, NO_MAGIC_LINKS)
    finally:
        os.close(root)
