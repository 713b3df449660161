"""A terminal of a given width, and what a program writes to it."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Self

from tests.support.processes import Process, start_module
from tests.support.timeouts import PATIENCE

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """The other end of a terminal: collects what is written to it."""

    def __init__(self, columns: int = 80) -> None:
        self._own, self.stream = os.openpty()
        fcntl.ioctl(self.stream, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.raw = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in (self._own, self.stream):
            with suppress(OSError):
                os.close(handle)

    @property
    def lines(self) -> list[str]:
        """What was written so far, without colours."""
        return ANSI.sub("", self.raw).replace("\r\n", "\n").splitlines()

    def read_until(self, seen: Callable[[list[str]], bool]) -> list[str]:
        """Read until `seen` is true of the lines; return them."""
        while not seen(self.lines):
            assert select.select([self._own], [], [], PATIENCE)[0], self.raw
            self.raw += os.read(self._own, 65536).decode()
        return self.lines

    def read_all(self) -> list[str]:
        """Read to the end, which is when no process has the terminal any more."""
        os.close(self.stream)
        with suppress(OSError):
            while chunk := os.read(self._own, 65536):
                self.raw += chunk.decode()
        return self.lines


def on_screen(words: Sequence[str], env: Mapping[str, str], columns: int = 80) -> tuple[Screen, int]:
    """Run `interlock` on a terminal; return the screen and the exit code."""
    with Screen(columns) as screen:
        process: Process = start_module("proxy.cli", *words, env=dict(env), stdout=screen.stream, stderr=screen.stream)
        with process:
            screen.read_all()
            return screen, process.wait(PATIENCE)
