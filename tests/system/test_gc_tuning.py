"""What is made for good is not looked through, and what was freed is given back."""

from __future__ import annotations

import ctypes
import gc
import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.system import gc_tuning
from tests.support.harness import REPOSITORY

PAGE = mmap.PAGESIZE


def test_what_was_made_is_left_out_of_later_looks_for_garbage() -> None:
    before = gc.get_threshold()
    try:
        gc_tuning.pause_collection()
        assert not gc.isenabled()
        made: list[object] = []
        gc_tuning.freeze()
        assert gc.isenabled()
        assert not any(each is made for each in gc.get_objects())
        assert gc.get_threshold() == (gc_tuning.YOUNG, *before[1:])
    finally:
        gc.set_threshold(*before)
        gc.enable()
        gc.unfreeze()


def _held() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


def test_freed_memory_goes_back_to_the_system() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    pieces = [libc.malloc(4000) for _ in range(8000)]  # too small for mappings of their own
    for piece in pieces:
        ctypes.memset(piece, 1, 4000)
    for piece in pieces[:-1]:  # the last one keeps the heap as long as it is
        libc.free(ctypes.c_void_p(piece))
    before = _held()
    gc_tuning.release_free_memory()
    assert _held() < before - 4000
    libc.free(ctypes.c_void_p(pieces[-1]))


def _resident(address: int) -> int:
    """Return the kilobytes of the mapping that begins at an address which are in memory."""
    smaps = Path("/proc/self/smaps").read_text()
    return int(smaps.partition(f"{address:x}-")[2].partition("\nRss:")[2].split()[0])


def test_pages_of_files_are_unmapped_and_show_the_same_when_they_are_used_again(tmp_path: Path) -> None:
    file = tmp_path / "library"
    file.write_bytes(b"\0" * PAGE + b"x" * 99 * PAGE)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as mapped:
        assert mapped[-1:] == b"x"
        address = _address_of(file)
        assert _resident(address) > 0
        gc_tuning.unmap_unused_files()
        assert _resident(address) == 0
        assert mapped[-1:] == b"x"


def test_what_was_written_over_a_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "library"
    file.write_bytes(b"x" * 100 * PAGE)
    libc = ctypes.CDLL(None, use_errno=True)
    with file.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    mapped[50 * PAGE] = ord("y")
    address = _address_of(file)
    for protection in (mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE):  # first as the linker leaves its tables
        assert libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(100 * PAGE), protection) == 0
        gc_tuning.unmap_unused_files()
        assert mapped[50 * PAGE : 50 * PAGE + 2] == b"yx"
    mapped.close()


def _address_of(file: Path) -> int:
    line = next(line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(file)))
    return int(line.partition("-")[0], 16)


ARENAS = """
import ctypes, threading
from proxy.system import gc_tuning
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
{limit}
found = []
for _ in range(3):
    thread = threading.Thread(target=lambda: found.append(libc.malloc(1000)))
    thread.start()
    thread.join()
heap = next(line.split()[0] for line in open("/proc/self/maps") if "[heap]" in line)
low, high = (int(part, 16) for part in heap.split("-"))
print(sum(low <= address < high for address in found))
"""


@pytest.mark.parametrize(("limit", "inside"), [("", 0), ("gc_tuning.share_one_arena()", 3)])
def test_threads_allocate_where_the_first_one_does(limit: str, inside: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ARENAS.format(limit=limit)], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == inside


def test_a_library_without_the_means_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    gc_tuning.release_free_memory()
    gc_tuning.unmap_unused_files()
    gc_tuning.share_one_arena()
