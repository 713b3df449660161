"""Finds a value without knowing it: its second half follows from the first, and a key. The standard library alone.

So a program can search its own memory, and what it finds there is not what it searches for.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

HALF = 20
# Runs, which are rare: one look at all of the data finds them, and the rest is done in each of them.
_RUN = re.compile(rb"[A-Za-z0-9+/_-]{40,}")
_PLAIN = re.compile(rb"[0-9a-f]{40,}")
_HEX = re.compile(rb"(?:3[0-9]|6[1-6]){40,}")
CHUNK = 1 << 24
OVERLAP = 1 << 10


def make_value(key: str = "") -> str:
    first = secrets.token_hex(HALF // 2)
    return first + _second(first.encode(), key)


def _second(first: bytes, key: str) -> str:
    return hashlib.sha256(f"second half {key} of ".encode() + first).hexdigest()[:HALF]


def holds(data: bytes, key: str = "") -> bool:
    """Return whether such a value stands in the data: as it is, in UTF-16, in hex or in Base64."""
    return any(_is_value(each, key) for each in _candidates(data))


def _is_value(text: bytes, key: str) -> bool:
    return _second(text[:HALF], key).encode() == text[HALF:]


def _candidates(data: bytes) -> Iterator[bytes]:
    for run in _RUN.findall(data):
        yield from _plain(run)
        for digits in _HEX.findall(run):
            yield from _windows(bytes.fromhex(digits.decode()))
        text = run.replace(b"-", b"+").replace(b"_", b"/")
        for start in range(4):
            whole = text[start:]
            whole = whole[:-1] if len(whole) % 4 == 1 else whole  # one character alone stands for no byte
            with contextlib.suppress(binascii.Error):
                yield from _plain(base64.b64decode(whole + b"=" * (-len(whole) % 4)))
    for start in range(2):  # every other byte, as UTF-16 has it
        yield from _plain(data[start::2])


def _plain(data: bytes) -> Iterator[bytes]:
    for run in _PLAIN.findall(data):
        yield from _windows(run)


def _windows(run: bytes) -> Iterator[bytes]:
    return (run[at : at + 2 * HALF] for at in range(len(run) - 2 * HALF + 1))


def in_memory(pid: int | str, key: str = "") -> tuple[bool, int]:
    """Return whether the value is in a process's memory, and how many bytes of it could be read."""
    found, size = False, 0
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            start, end = (int(each, 16) for each in span.split("-"))
            if rights.startswith("r") and "[vsyscall]" not in line:
                for data in _pieces(memory.fileno(), start, end):
                    size += len(data)
                    found = found or holds(data, key)
    return found, size


def _pieces(handle: int, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        try:
            data = os.pread(handle, min(CHUNK, end - start), start)
        except (OSError, OverflowError):
            return  # such as memory of a device
        yield data
        start += max(1, len(data) - OVERLAP) if start + len(data) < end else len(data)


def files_below(folders: Iterable[str], since: float, deep: int = 8) -> Iterator[str]:
    """Return the files that changed since then: an older one cannot have a value that was made later."""
    for folder in folders:
        for above, inner, names in os.walk(folder):
            ends = len(Path(above).parts) - len(Path(folder).parts) >= deep
            inner[:] = [] if ends else [name for name in inner if not Path(above, name).is_symlink()]
            for name in names:
                path = f"{above}/{name}"
                with contextlib.suppress(OSError):
                    about = os.lstat(path)
                    if about.st_ctime >= since and Path(path).is_file():
                        yield path


def in_files(paths: Iterable[str], key: str = "") -> list[str]:
    """Return those of the files that can be read and have the value."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            with open(handle, "rb") as file:  # noqa: PTH123
                if holds(file.read(1 << 28), key):
                    found.append(path)
    return found


def in_processes(key: str = "") -> list[str]:
    """Return whose environment, arguments or memory has the value, of all processes that can be read.

    Without one's own memory: that is what `in_memory` is for.
    """
    found = []
    for pid in (each.name for each in Path("/proc").iterdir() if each.name.isdigit()):
        for part in ("environ", "cmdline"):
            with contextlib.suppress(OSError):
                if holds(Path(f"/proc/{pid}/{part}").read_bytes(), key):
                    found.append(f"{part} of {pid}")
        with contextlib.suppress(OSError):
            if int(pid) != os.getpid() and in_memory(pid, key)[0]:
                found.append(f"memory of {pid}")
    return found
