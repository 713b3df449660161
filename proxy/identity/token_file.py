"""Names and their tokens in a file of the state folder: names in the clear, tokens only as hashes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import re
import secrets
import time
from typing import TYPE_CHECKING, Any, ClassVar

from proxy.errors import ConfigError
from proxy.system.secret_files import write_private

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
HASH = re.compile(r"[0-9a-f]{64}")


class TokenBook:
    """Who holds a token, in one state folder. A change on disk is seen at the next look.

    A subclass says whose tokens they are, and how these begin, so that secret
    scanners can look for them and nobody takes one kind for another.
    """

    role: ClassVar[str]
    prefix: ClassVar[str]

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / f"{self.role}s.json"
        self._stamp: tuple[int, int] | None = None
        self._entries: dict[str, dict[str, Any]] = {}

    def verify(self, name: str, token: str) -> bool:
        """Return whether `token` is the one `name` was given, in constant time."""
        known = self._read().get(name, {}).get("token_sha256", "")
        return hmac.compare_digest(known, _hash(token)) and bool(known)

    def holder(self, token: str) -> str | None:
        """Say whose token this is, if anybody's; how long that takes does not depend on the token."""
        digest, found = _hash(token), None
        for name, entry in self._read().items():
            if hmac.compare_digest(entry["token_sha256"], digest):
                found = name
        return found if token.startswith(self.prefix) else None

    def names(self) -> dict[str, float]:
        """Return each name and when it was added."""
        return {name: float(entry["added"]) for name, entry in self._read().items()}

    def add(self, name: str) -> str:
        """Add a name and give its token, which is shown this once and stored as a hash.

        Raises ConfigError for a name that is taken or of a wrong form.
        """
        token = self.new_token()
        with self._changing() as entries:
            if name in entries:
                raise ConfigError(
                    f"{self.role} {name!r} is there already; "
                    f"`interlock {self.role}s revoke {name}` first for a new token"
                )
            entries[name] = self._entry(name, token)
        return token

    def revoke(self, name: str) -> None:
        """Remove a name and its token. Raises ConfigError where there is none of that name."""
        with self._changing() as entries:
            if name not in entries:
                known = ", ".join(sorted(entries)) or "none"
                raise ConfigError(f"there is no {self.role} {name!r}; known {self.role}s: {known}")
            del entries[name]

    def new_token(self) -> str:
        """Make a token that nobody holds yet."""
        return self.prefix + secrets.token_urlsafe(32)

    def _entry(self, name: str, token: str) -> dict[str, Any]:
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"{self.role} name {name!r} cannot be used; take 1 to 64 letters, digits, dots, dashes and underscores"
            )
        return {"token_sha256": _hash(token), "added": time.time()}

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, dict[str, Any]]]:
        """Return the entries to change, and write them; one process at a time, so that no change undoes another."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entries = dict(self._read())
            yield entries
            write_private(self.path, json.dumps(entries, indent=1).encode())

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return {}
        stamp = (stat.st_mtime_ns, stat.st_ino)
        if stamp != self._stamp:
            self._entries = self._parse(self.path.read_bytes())
            self._stamp = stamp
        return self._entries

    def _parse(self, data: bytes) -> dict[str, dict[str, Any]]:
        try:
            entries = json.loads(data)
        except ValueError as error:
            raise ConfigError(f"{self.path} is not readable as JSON ({error}); restore it or delete it") from error
        if not isinstance(entries, dict) or not all(_is_entry(entry) for entry in entries.values()):
            raise ConfigError(f"{self.path} is not a list of {self.role}s and token hashes; restore it or delete it")
        return entries


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("added"), int | float)
        and isinstance(digest := entry.get("token_sha256"), str)
        and HASH.fullmatch(digest) is not None
    )


def _hash(token: str) -> str:
    # Tokens are 256 random bits, so a fast hash is as good as a slow one.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
