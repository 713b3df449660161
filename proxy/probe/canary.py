"""Makes a home folder full of canaries: fake files like those that servers steal, each with a unique value.

A value found in network traffic identifies its file, even where it was encoded, reversed or sent in pieces.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import subprocess
import time
from base64 import b32encode, b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.probe.canary_files import DOCUMENTS, FOLDERS, PLAIN, SECRETS

if TYPE_CHECKING:
    from collections.abc import Iterator

ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
TOKEN_LENGTH = 40
# So many characters in a row identify a value, in any encoding: by chance they occur once in 10**18.
WINDOW = 12
SCANNED = 1 << 20
REPOSITORY = Path("projects", "sample")
DAY, YEAR = 86_400, 365 * 86_400
# A variable that no server has a use for: it is a canary too.
ENVIRONMENT = "DEPLOY_SIGNING_PASSPHRASE"


@dataclass(frozen=True, slots=True)
class Canary:
    """One value, and its source: a path below the home, or the name of a variable."""

    source: str
    value: str
    secret: bool = True  # not so for documents, which tools are asked to read


@dataclass(frozen=True, slots=True)
class CanaryHome:
    """A home that exists in `folder`; the server sees it at `path`, and so do its arguments and the trace."""

    folder: Path
    canaries: tuple[Canary, ...]
    path: Path

    @property
    def documents(self) -> Path:
        return self.path / "documents"

    @property
    def repository(self) -> Path:
        return self.path / REPOSITORY

    @property
    def variable(self) -> tuple[str, str]:
        return next((c.source, c.value) for c in self.canaries if c.source == ENVIRONMENT)


def make_home(folder: Path, seen_at: Path | None = None) -> CanaryHome:
    """Create a home in `folder`, which the server sees at `seen_at`; its values are unlike those of every other run."""
    templates = SECRETS | DOCUMENTS
    canaries = [Canary(f"~/{path}", _token(), secret=path in SECRETS) for path in templates]
    for canary in canaries:
        path = canary.source[2:]
        _write(folder / path, templates[path].replace("{}", canary.value), 0o600 if canary.secret else 0o644)
    for path, text in PLAIN.items():
        _write(folder / path, text, 0o644)
    for below in FOLDERS:
        (folder / below).mkdir(parents=True, exist_ok=True)
    _make_repository(folder / REPOSITORY)
    _age(folder)
    return CanaryHome(folder, (*canaries, Canary(ENVIRONMENT, _token())), seen_at or folder)


def _age(folder: Path) -> None:
    """Give every file and folder a time of the last year: a home in which all is of this minute is nobody's."""
    now = time.time()
    for root, _, files in os.walk(folder, topdown=False):
        for name in (*files, ""):
            when = now - DAY - secrets.randbelow(YEAR)
            os.utime(Path(root, name), (when, when), follow_symlinks=False)


def restore_documents(home: CanaryHome) -> None:
    """Restore the documents that a tool has changed, so that the next one finds what its arguments name."""
    for canary in home.canaries:
        template = DOCUMENTS.get(canary.source.removeprefix("~/"))
        if template is not None:
            with contextlib.suppress(OSError):  # what is in the way was put there by the server
                _restore(home.folder, canary.source[2:], template.replace("{}", canary.value))


def _restore(folder: Path, below: str, text: str) -> None:
    # We are outside of the sinkhole and the server writes to this folder: a link that it made here, in place of a
    # folder or of the file, would let it overwrite any file of ours. So every step is by descriptor and follows none.
    *folders, name = below.split("/")
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for each in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(each, 0o755, dir_fd=handle)
            inner = os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=handle)
        made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=handle)
        with os.fdopen(made, "w") as file:
            file.write(text)
    finally:
        os.close(handle)


def _token() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(TOKEN_LENGTH))


def _write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _make_repository(folder: Path) -> None:
    """Make `folder` a git repository with two commits and a change; without git it stays a folder."""
    git = shutil.which("git")
    if git is None:
        return
    who = ["-c", "user.name=Alex Moreau", "-c", "user.email=alex@example.org", "-c", "commit.gpgsign=false"]
    # Neither the caller's configuration nor a template's hooks.
    environ = {"HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "PATH": "/usr/bin:/bin"}

    def run(*words: str) -> None:
        when = f"@{int(time.time()) - DAY - secrets.randbelow(YEAR)} +0000"
        dated = {**environ, "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
        subprocess.run(  # noqa: S603  our own words
            [git, *who, *words], cwd=folder, env=dated, check=True, capture_output=True, timeout=30
        )

    run("init", "--quiet", "--initial-branch=main", "--template=")
    run("add", "--all")
    run("commit", "--quiet", "--message=First")
    (folder / "app.py").write_text('def greet(name: str) -> str:\n    return f"Hello {name}"\n')
    run("commit", "--quiet", "--all", "--message=Type it")
    run("branch", "feature")
    (folder / "README.md").write_text("# Sample\n\nA small project, with a change.\n")


class CanaryWatch:
    """Recognises canaries in bytes: plain, in base64, base32, hex, percent escapes, reversed, and in pieces."""

    def __init__(self, canaries: tuple[Canary, ...]) -> None:
        self._sources = {
            form[at : at + WINDOW]: canary
            for canary in canaries
            for form in _forms(canary.value)
            for at in range(len(form) - WINDOW + 1)
        }

    def find(self, data: bytes) -> tuple[Canary, ...]:
        """Return the canaries in the first megabyte of `data`."""
        text = _plain(data[:SCANNED])
        found = {self._sources.get(text[at : at + WINDOW]): None for at in range(len(text) - WINDOW + 1)}
        return tuple(canary for canary in found if canary is not None)


_NOT_ALNUM = re.compile(r"[^a-z0-9]+")


def _plain(data: bytes) -> str:
    # Letters and digits alone: a value split by dots into DNS labels, escaped or wrapped is found too.
    return _NOT_ALNUM.sub("", data.decode("latin-1").lower())


def _forms(value: str) -> Iterator[str]:
    raw = value.encode()
    for data in (raw, raw[::-1]):
        yield data.decode()
        yield data.hex()
        for shift in range(5):
            # Inside a longer text the encoding depends on the offset, and the first and last letters on neighbours.
            if shift < 3:
                yield _plain(b64encode(bytes(shift) + data)[4:-4])
            yield _plain(b32encode(bytes(shift) + data)[8:-8])
