"""Installs a lock file into .venv and this checkout beside it, and says what it is doing from the first second.

    python3.12 scripts/install.py requirements.lock

Needs the standard library alone: it makes the environment that everything else runs in. pip's own words go to
.venv/install.log, and to the terminal where it fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--progress-bar", "off", "--no-deps")
_PINNED = re.compile(r"^[A-Za-z0-9][\w.-]*==", re.MULTILINE)
_COLLECTING = re.compile(r"^(?:Collecting|Requirement already satisfied:|Processing) +(?:\S*/)?([\w.-]+)")
_UNPACKING = "Installing collected packages"
WORDS_AT_FAILURE = 15


def packages(lock: str) -> int:
    """Return how many packages a lock file names."""
    return len(_PINNED.findall(lock))


def progress(lines: Iterable[str], total: int) -> Iterator[str]:
    """Yield what to show for pip's output: which package it is at, and when it unpacks them all."""
    at = 0
    for line in lines:
        if found := _COLLECTING.match(line):
            at += 1
            yield f"  {at} of {max(total, at)}: {found[1]}"
        elif at and line.startswith(_UNPACKING):
            yield f"  unpacking {at}"


class Screen:
    """Shows one changing line on a terminal; elsewhere, a line every few seconds."""

    SECONDS = 5.0

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._shown = time.monotonic()

    def say(self, text: str) -> None:
        print(f"\r\033[K{text}" if self._terminal else text, flush=True)

    def update(self, text: str) -> None:
        if self._terminal:
            print(f"\r\033[K{text[:79]}", end="", flush=True)
        elif time.monotonic() - self._shown > self.SECONDS:
            self._shown = time.monotonic()
            print(text, flush=True)

    def clear(self) -> None:
        if self._terminal:
            print("\r\033[K", end="", flush=True)


def pip(python: Path, words: list[str], log: Path, screen: Screen, total: int) -> None:
    """Run `pip install`; exit with its code and last words where it fails."""
    with log.open("a") as file:
        command = [str(python), *PIP, *words]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            errors="replace",
        )
        with process:
            assert process.stdout is not None
            for text in progress(_kept(process.stdout, log), total):
                screen.update(text)
    screen.clear()
    if process.returncode:
        last = log.read_text(errors="replace").splitlines()[-WORDS_AT_FAILURE:]
        print(*last, f"pip failed; all it said is in {log}", sep="\n", file=sys.stderr)
        sys.exit(process.returncode)


def _kept(lines: Iterable[str], log: Path) -> Iterator[str]:
    with log.open("a") as file:
        for line in lines:
            file.write(line)
            file.flush()
            yield line


def main() -> None:
    lock, began, screen = ROOT / sys.argv[1], time.monotonic(), Screen()
    total, python = packages(lock.read_text()), VENV / "bin" / "python"
    screen.say(f"Interlock: installing {total} packages from {lock.name} into .venv; about a minute, once.")
    if not python.exists():
        screen.say(f"  making .venv with Python {sys.version.split()[0]} ({sys.executable})")
        venv.create(VENV, with_pip=True, symlinks=True)
    log = VENV / "install.log"
    log.write_text("")
    pip(python, ["--require-hashes", "-r", str(lock)], log, screen, total)
    screen.say("  installing Interlock itself")
    pip(python, ["--no-build-isolation", "--editable", "."], log, screen, 1)
    screen.say(f"  done in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    # Bytecode is wanted, whatever the caller's habit: the proxy starts three times as fast with it.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    main()
