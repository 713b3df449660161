"""Keeps what imports compile anew at each start: the methods of dataclasses, and regular expressions.

Python keeps the bytecode of modules, but `dataclasses` writes and compiles source for every class, and `re` compiles
every pattern: a third of the imports of `interlock run`. Both follow from their text alone, which is the key. The file
lies beside this module's bytecode and is trusted as that is: who can write there can change the code itself. Where
bytecode is not kept, or the file cannot be written, all is compiled as ever.
"""

from __future__ import annotations

import builtins
import dataclasses
import hashlib
import marshal
import os
import re
import sys
import threading
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import CodeType

SUM_BYTES = 32
MOST = 4_000  # entries of older versions are dropped once there are more
UNKEPT = re.DEBUG | re.LOCALE
type Pattern = tuple[int, bytes, int, dict[str, int], tuple[str | None, ...]]


class ImportCache:
    """While it is entered, what was compiled before comes from `file`. Leaving it adds what is new.

    Enter it around imports alone: what else is compiled, such as a policy's patterns, is nobody's to find there. What
    other threads compile meanwhile is not kept either.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._code: dict[bytes, CodeType] = {}
        self._patterns: dict[tuple[str | bytes, int], Pattern] = {}
        self._thread = 0
        self._known = -1  # how many were read or written; -1: the file was not read yet
        # Inner parts of the standard library: a version that has others goes without.
        self._re: Any = getattr(re, "_compiler", None)
        self._compile: Any = getattr(self._re, "compile", None)

    def __enter__(self) -> Self:
        if self._file is None:
            return self
        if self._known < 0:
            self._read(self._file)
        self._thread = threading.get_ident()
        dataclasses.exec = self._execute  # type: ignore[attr-defined]  # it hides the builtin in that module alone
        if self._compile is not None:
            self._re.compile = self._pattern
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is None:
            return
        del dataclasses.exec  # type: ignore[attr-defined]
        if self._compile is not None:
            self._re.compile = self._compile
        if self._count() > self._known and not sys.dont_write_bytecode:
            self._write(self._file)

    def _count(self) -> int:
        return len(self._code) + len(self._patterns)

    def _read(self, file: Path) -> None:
        try:
            data = file.read_bytes()
            if _checksum(data[SUM_BYTES:]) == data[:SUM_BYTES]:
                self._code, self._patterns = marshal.loads(data[SUM_BYTES:])  # noqa: S302  as Python reads bytecode
        except (OSError, ValueError, TypeError, EOFError):
            pass  # there is none yet, or it is damaged: it is written anew
        self._known = self._count()

    def _write(self, file: Path) -> None:
        """Write the file whole; where that fails, the next start compiles again."""
        data = marshal.dumps((self._code, self._patterns) if self._count() <= MOST else ({}, {}))
        made = file.with_name(f"{file.name}.{os.getpid()}")
        try:
            made.write_bytes(_checksum(data) + data)
            made.replace(file)
        except OSError:
            return
        self._known = self._count()

    def _execute(self, text: str, names: dict[str, Any], found: dict[str, Any]) -> None:
        key = _checksum(text.encode())
        code = self._code.get(key)
        if threading.get_ident() != self._thread:
            code = compile(text, "<string>", "exec", dont_inherit=True)
        elif code is None:
            code = self._code[key] = compile(text, "<string>", "exec", dont_inherit=True)
        builtins.exec(code, names, found)  # noqa: S102  the code that dataclasses would execute

    def _pattern(self, text: Any, flags: int = 0) -> Any:
        if flags & UNKEPT or type(text) not in (str, bytes) or threading.get_ident() != self._thread:
            return self._compile(text, flags)
        found = self._patterns.get((text, flags))
        if found is None:
            found = self._patterns[text, int(flags)] = self._parse(text, flags)
        all_flags, code, *rest = found
        return self._re._sre.compile(text, all_flags, memoryview(code).cast("I").tolist(), *rest)  # noqa: SLF001

    def _parse(self, text: str | bytes, flags: int) -> Pattern:
        """Do what `re` does up to its last step."""
        parsed = self._re._parser.parse(text, flags)  # noqa: SLF001
        code = array("I", self._re._code(parsed, flags))  # noqa: SLF001
        state = parsed.state
        names: list[str | None] = [None] * state.groups
        for name, number in state.groupdict.items():
            names[number] = name
        return int(flags | state.flags), code.tobytes(), state.groups - 1, dict(state.groupdict), tuple(names)


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=SUM_BYTES).digest()


def beside_bytecode(cached: str | None) -> Path | None:
    """Return the file that belongs to a module's bytecode, for exactly this Python; None where that is not kept."""
    version = f"{sys.version} {sys.implementation.cache_tag} {sys.byteorder}".encode()
    return None if cached is None else Path(f"{cached}.{_checksum(version).hex()[:16]}")


kept: ImportCache = ImportCache(beside_bytecode(getattr(__spec__, "cached", None)))
