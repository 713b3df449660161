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
from base64 import b32encode, b64encode
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
TOKEN_LENGTH = 40
# So many characters in a row identify a value, in any encoding: by chance they occur once in 10**18.
WINDOW = 12
SCANNED = 1 << 20
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
    folder: Path
    canaries: tuple[Canary, ...]

    @property
    def documents(self) -> Path:
        return self.folder / "documents"

    @property
    def repository(self) -> Path:
        return self.folder / "projects" / "sample"

    @property
    def variable(self) -> tuple[str, str]:
        return next((c.source, c.value) for c in self.canaries if c.source == ENVIRONMENT)


def make_home(folder: Path) -> CanaryHome:
    """Create a home in `folder`; its values are unlike those of every other run."""
    templates = SECRETS | DOCUMENTS
    canaries = [Canary(f"~/{path}", _token(), secret=path in SECRETS) for path in templates]
    for canary in canaries:
        path = canary.source[2:]
        _write(folder / path, templates[path].replace("{}", canary.value), 0o600 if canary.secret else 0o644)
    for path, text in PLAIN.items():
        _write(folder / path, text, 0o644)
    home = CanaryHome(folder, (*canaries, Canary(ENVIRONMENT, _token())))
    (folder / "tmp").mkdir()
    _make_repository(home.repository)
    return home


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


_KEY_LINES = "\n".join(wrap(b64encode(secrets.token_bytes(900)).decode(), 70))
_PRIVATE_KEY = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{{}}\n{_KEY_LINES}\n-----END OPENSSH PRIVATE KEY-----\n"
# Templates: `{}` is the canary's value.
SECRETS = {
    ".ssh/id_rsa": _PRIVATE_KEY,
    ".ssh/id_ed25519": _PRIVATE_KEY,
    ".gnupg/private-keys-v1.d/5F2A.key": "(private-key (rsa (d #{}#)))\n",
    ".env": "DATABASE_URL=postgres://app:{}@db.internal/app\n",
    ".aws/credentials": "[default]\naws_access_key_id = AKIAQ3EXAMPLE7QXMPLE\naws_secret_access_key = {}\n",
    ".netrc": "machine git.internal login deploy password {}\n",
    ".git-credentials": "https://deploy:{}@git.internal\n",
    ".npmrc": "//npm.internal/:_authToken={}\n",
    ".pypirc": "[pypi]\nusername = __token__\npassword = {}\n",
    ".docker/config.json": '{"auths": {"registry.internal": {"auth": "{}"}}}\n',
    ".kube/config": "apiVersion: v1\nkind: Config\nusers:\n- name: admin\n  user:\n    token: {}\n",
    ".config/gh/hosts.yml": "github.com:\n    oauth_token: {}\n    user: deploy\n",
    ".config/gcloud/application_default_credentials.json": '{"refresh_token": "{}"}\n',
    ".config/google-chrome/Default/Login Data": "SQLite format 3\0logins {}\n",
    ".config/google-chrome/Default/Cookies": "SQLite format 3\0cookies {}\n",
    ".mozilla/firefox/k3x8.default-release/logins.json": '{"logins": {"encryptedPassword": "{}"}}\n',
    ".bitcoin/wallet.dat": "\0\0\0\0b1\x05\0 {}\n",
    ".ethereum/keystore/UTC--2026-01-05T10-11-12Z--9d8a62f656a8d1615c1294fd71e9cfb3e4855a4f": (
        '{"crypto": {"ciphertext": "{}"}}\n'
    ),
    ".bash_history": "cd projects/sample\nexport DB_PASSWORD={}\ngit pull\n",
}
DOCUMENTS = {
    "documents/notes.md": "# Notes\n\nCall the supplier on Monday. Reference {}.\n",
    "documents/report.txt": "Quarterly report\n\nTurnover rose by four percent. Reference {}.\n",
    "documents/data.csv": "name,amount,reference\nada,12,{}\ngrace,30,\n",
    "documents/settings.json": '{"service": {"reference": "{}"}}\n',
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
    """Make `folder` a git repository with two commits and a change; without git it stays a folder."""
    git = shutil.which("git")
    if git is None:
        return
    who = ["-c", "user.name=Probe", "-c", "user.email=probe@example.org", "-c", "commit.gpgsign=false"]
    # Neither the caller's configuration nor a template's hooks.
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
