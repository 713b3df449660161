"""A home folder that holds nothing real: files like those that servers steal, each with a value of its own.

A value seen on the wire names the file it was taken from, also where it was
encoded, turned round or cut into pieces on the way.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
TOKEN_LENGTH = 40
WINDOW = 12
"""So many letters in a row of a value, in any of its forms, are that value: chance makes them once in 10**18."""
SCANNED = 1 << 20
ENVIRONMENT = "DEPLOY_SIGNING_PASSPHRASE"
"""A variable that no server has a use for."""


@dataclass(frozen=True, slots=True)
class Canary:
    """One value, and where it is kept: a path below the home, or the name of a variable."""

    source: str
    value: str
    secret: bool = True
    """False for documents, which a tool may well be asked to read."""


@dataclass(frozen=True, slots=True)
class CanaryHome:
    """A home on disk, and the values in it."""

    folder: Path
    canaries: tuple[Canary, ...]

    @property
    def documents(self) -> Path:
        """Documents that tools may be pointed at."""
        return self.folder / "documents"

    @property
    def repository(self) -> Path:
        """A small git repository."""
        return self.folder / "projects" / "sample"

    @property
    def temporary(self) -> Path:
        """Where TMPDIR points."""
        return self.folder / "tmp"

    @property
    def secret_files(self) -> frozenset[str]:
        """The absolute paths of the files that no tool has business with."""
        return frozenset(
            str(self.folder / canary.source[2:])
            for canary in self.canaries
            if canary.secret and canary.source.startswith("~/")
        )

    @property
    def variable(self) -> tuple[str, str]:
        """The environment variable that is a canary too."""
        return next((c.source, c.value) for c in self.canaries if c.source == ENVIRONMENT)


def make_home(folder: Path) -> CanaryHome:
    """Build a home in `folder`, which is made; its values are unlike those of every other run."""
    canaries = []
    for path, write in SECRETS.items():
        canaries.append(Canary(f"~/{path}", _token()))
        _write(folder / path, write(canaries[-1].value), 0o600)
    for path, write in DOCUMENTS.items():
        canaries.append(Canary(f"~/{path}", _token(), secret=False))
        _write(folder / path, write(canaries[-1].value), 0o644)
    for path, text in PLAIN.items():
        _write(folder / path, text, 0o644)
    canaries.append(Canary(ENVIRONMENT, _token()))
    home = CanaryHome(folder, tuple(canaries))
    home.temporary.mkdir(parents=True, exist_ok=True)
    _make_repository(home.repository)
    return home


def restore_documents(home: CanaryHome) -> None:
    """Put back the documents that a tool has changed, so that the next one finds what its arguments name."""
    for canary in home.canaries:
        write = DOCUMENTS.get(canary.source.removeprefix("~/"))
        if write is not None:
            with contextlib.suppress(OSError):  # whatever stands in the way is the server's own doing
                _put_back(home.folder, canary.source[2:], write(canary.value))


def _put_back(folder: Path, below: str, text: str) -> None:
    """Write a file anew, following no link: the server may have laid one, and here, outside, it would lead out."""
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


def _private_key(kind: str) -> Callable[[str], str]:
    def write(token: str) -> str:
        body = token + base64.b64encode(secrets.token_bytes(900)).decode()
        lines = [body[at : at + 70] for at in range(0, len(body), 70)]
        return "\n".join([f"-----BEGIN {kind} PRIVATE KEY-----", *lines, f"-----END {kind} PRIVATE KEY-----", ""])

    return write


def _json(*path: str) -> Callable[[str], str]:
    def write(token: str) -> str:
        value: object = token
        for key in reversed(path):
            value = {key: value}
        return json.dumps(value, indent=2) + "\n"

    return write


def _text(template: str) -> Callable[[str], str]:
    return lambda token: template.replace("{}", token)


SECRETS: dict[str, Callable[[str], str]] = {
    ".ssh/id_rsa": _private_key("OPENSSH"),
    ".ssh/id_ed25519": _private_key("OPENSSH"),
    ".gnupg/private-keys-v1.d/5F2A.key": _text("(private-key (rsa (d #{}#)))\n"),
    ".env": _text("DATABASE_URL=postgres://app:{}@db.internal/app\n"),
    ".aws/credentials": _text("[default]\naws_access_key_id = AKIAQ3EXAMPLE7QXMPLE\naws_secret_access_key = {}\n"),
    ".netrc": _text("machine git.internal login deploy password {}\n"),
    ".git-credentials": _text("https://deploy:{}@git.internal\n"),
    ".npmrc": _text("//npm.internal/:_authToken={}\n"),
    ".pypirc": _text("[pypi]\nusername = __token__\npassword = {}\n"),
    ".docker/config.json": _json("auths", "registry.internal", "auth"),
    ".kube/config": _text("apiVersion: v1\nkind: Config\nusers:\n- name: admin\n  user:\n    token: {}\n"),
    ".config/gh/hosts.yml": _text("github.com:\n    oauth_token: {}\n    user: deploy\n"),
    ".config/gcloud/application_default_credentials.json": _json("refresh_token"),
    ".config/google-chrome/Default/Login Data": _text("SQLite format 3\0logins {}\n"),
    ".config/google-chrome/Default/Cookies": _text("SQLite format 3\0cookies {}\n"),
    ".mozilla/firefox/k3x8.default-release/logins.json": _json("logins", "encryptedPassword"),
    ".bitcoin/wallet.dat": _text("\0\0\0\0b1\x05\0 {}\n"),
    ".ethereum/keystore/UTC--2026-01-05T10-11-12Z--9d8a62f656a8d1615c1294fd71e9cfb3e4855a4f": _json(
        "crypto", "ciphertext"
    ),
    ".bash_history": _text("cd projects/sample\nexport DB_PASSWORD={}\ngit pull\n"),
}
DOCUMENTS: dict[str, Callable[[str], str]] = {
    "documents/notes.md": _text("# Notes\n\nCall the supplier on Monday. Reference {}.\n"),
    "documents/report.txt": _text("Quarterly report\n\nTurnover rose by four percent. Reference {}.\n"),
    "documents/data.csv": _text("name,amount,reference\nada,12,{}\ngrace,30,\n"),
    "documents/settings.json": _json("service", "reference"),
}
PLAIN = {
    ".bashrc": "alias ll='ls -l'\n",
    ".profile": "PATH=$HOME/bin:$PATH\n",
    ".gitconfig": "[user]\n\tname = Probe\n\temail = probe@example.org\n[init]\n\tdefaultBranch = main\n",
    ".ssh/known_hosts": "git.internal ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample\n",
    "projects/sample/README.md": "# Sample\n\nA small project.\n",
    "projects/sample/app.py": 'def greet(name):\n    return f"Hello {name}"\n',
}


def _make_repository(folder: Path) -> None:
    """Make `folder` a repository with two commits and a change; where there is no git it stays a folder."""
    git = shutil.which("git")
    if git is None:
        return
    who = ["-c", "user.name=Probe", "-c", "user.email=probe@example.org", "-c", "commit.gpgsign=false"]
    environ = {"HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "PATH": "/usr/bin:/bin"}

    def run(*words: str) -> None:
        subprocess.run(  # noqa: S603  our own words
            [git, *who, *words], cwd=folder, env=environ, check=True, capture_output=True, timeout=30
        )

    run("init", "--quiet", "--initial-branch=main", "--template=")
    run("add", "--all")
    run("commit", "--quiet", "--message=First")
    (folder / "app.py").write_text('def greet(name: str) -> str:\n    return f"Hello {name}"\n')
    run("commit", "--quiet", "--all", "--message=Type it")
    run("branch", "feature")
    (folder / "README.md").write_text("# Sample\n\nA small project, with a change.\n")


class CanaryWatch:
    """Recognises canaries in bytes: as they are, in base64, base32, hex, percent escapes, reversed, and in pieces."""

    def __init__(self, canaries: tuple[Canary, ...]) -> None:
        self._sources = {
            form[at : at + WINDOW]: canary
            for canary in canaries
            for form in _forms(canary.value)
            for at in range(len(form) - WINDOW + 1)
        }

    def find(self, data: bytes) -> tuple[Canary, ...]:
        """Return the canaries in `data`, of which the first megabyte is read."""
        text = _plain(data[:SCANNED])
        found = {self._sources.get(text[at : at + WINDOW]): None for at in range(len(text) - WINDOW + 1)}
        return tuple(canary for canary in found if canary is not None)


_NOT_ALNUM = re.compile(r"[^a-z0-9]+")


def _plain(data: bytes) -> str:
    """Return the letters and digits alone: dots between labels, escapes and line ends go."""
    return _NOT_ALNUM.sub("", data.decode("latin-1").lower())


def _forms(value: str) -> Iterator[str]:
    raw = value.encode()
    for data in (raw, raw[::-1]):
        yield data.decode()
        yield data.hex()
        for shift in range(5):
            # Where the value stands in a longer text, its first and last letters mix with their neighbours.
            if shift < 3:
                yield _plain(base64.b64encode(bytes(shift) + data)[4:-4])
            yield _plain(base64.b32encode(bytes(shift) + data)[8:-8])
