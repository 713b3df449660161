"""The keys that sign commit tokens: in a file that is made on first use, or from the environment.

Several proxies and commands may share the file; a change of it is seen at the next look.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import re
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from proxy.core.secret_variables import COMMIT_SECRET
from proxy.errors import ConfigError
from proxy.system.secret_files import make_private, read_private, write_private
from proxy.twophase.tokens import MIN_SECRET, KeyRing, SigningKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


KEEP_SECONDS: Final = 2 * 86_400.0  # how long a key that was replaced still verifies: longer than any token lives
MIN_DIFFERENT: Final = 8
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


@dataclass(frozen=True, slots=True)
class Entry:
    """A key and when it was created; None if that is unknown."""

    key: SigningKey
    created_at: float | None = None


class CommitKeys(Protocol):
    """A store of keys. A key that cannot be read or used raises ConfigError; nothing is signed or verified then."""

    def ring(self, now: float) -> KeyRing:
        """Return the current keys, without those that have expired."""

    def entries(self, now: float) -> Sequence[Entry]:
        """Return the keys for display, the signing key first; none before the first one is created."""

    def rotate(self, now: float, keep_seconds: float = KEEP_SECONDS) -> Entry:
        """Sign with a new key from now on; the old one verifies for `keep_seconds` more."""


def open_keys(file: Path, environ: Mapping[str, str]) -> CommitKeys:
    """Return the keys of the environment, or of the file. Raises ConfigError for a secret that cannot be used."""
    if environ.get(COMMIT_SECRET):
        return EnvironmentKeys(environ[COMMIT_SECRET])
    return KeyFile(file)


class EnvironmentKeys:
    """Keys from the environment variable: the first signs, all verify."""

    def __init__(self, text: str) -> None:
        """Read secrets separated by commas. Raises ConfigError, which never repeats them."""
        made = [_key_of(_decode(part.strip(), place)) for place, part in enumerate(text.split(","), 1)]
        self._ring = KeyRing(made[0], tuple(made[1:]))

    def ring(self, now: float) -> KeyRing:  # noqa: ARG002  these do not expire
        return self._ring

    def entries(self, now: float) -> Sequence[Entry]:  # noqa: ARG002
        """Return the keys; when they were created is unknown."""
        return [Entry(key) for key in (self._ring.current, *self._ring.older)]

    def rotate(self, now: float, keep_seconds: float = KEEP_SECONDS) -> Entry:  # noqa: ARG002
        """Raise ConfigError with what to do instead."""
        raise ConfigError(
            f"the keys come from {COMMIT_SECRET}; put a new secret before the one there, with a comma between, "
            "start every proxy anew, and take the old one out once its tokens have expired"
        )


class KeyFile:
    """Random keys in a file that only its owner can read, created on first use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int, int] | None = None
        self._entries: tuple[Entry, ...] = ()

    def ring(self, now: float) -> KeyRing:
        """Return the current keys; create the first one if there is none."""
        # Several workers start at once; `make_private` lets one of them make the file, and all read that one.
        if not self.path.exists():
            make_private(self.path, _to_json([_new_entry(now)]))
        current, *older = (entry.key for entry in self._read(now))
        return KeyRing(current, tuple(older))

    def entries(self, now: float) -> Sequence[Entry]:
        return self._read(now) if self.path.exists() else []

    def rotate(self, now: float, keep_seconds: float = KEEP_SECONDS) -> Entry:
        """Write a new signing key to the file, and drop the expired ones."""
        with self._alone():
            new, data = self.rotated(now, keep_seconds)
            write_private(self.path, data)
        return new

    def rotated(self, now: float, keep_seconds: float) -> tuple[Entry, bytes]:
        """Return a new signing key, and what the file would hold with it; nothing is written."""
        new = _new_entry(now)
        # Older keys go on verifying until every token that they signed has expired.
        kept = [_until(entry, now + keep_seconds) for entry in self.entries(now)]
        return new, _to_json([new, *(entry for entry in kept if _lives(entry, now))])

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the file's lock, so that no process overwrites another's change."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self, now: float) -> list[Entry]:
        try:
            stat = self.path.stat()
            stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_mode)
            if stamp != self._stamp:
                self._entries = _from_json(read_private(self.path))
                self._stamp = stamp
        except OSError as error:
            raise ConfigError(f"the commit keys in {self.path} cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            # The error may quote the file, so it is not repeated.
            raise ConfigError(
                f"{self.path} does not hold commit keys; restore it, or delete it to make a new one: "
                "then tokens that were given out are refused"
            ) from error
        return [self._entries[0], *(entry for entry in self._entries[1:] if _lives(entry, now))]


def _new_entry(now: float) -> Entry:
    return Entry(_key_of(secrets.token_bytes(MIN_SECRET)), now)


def _key_of(secret: bytes) -> SigningKey:
    """Name a key by a hash of it, so that replicas with the same secret have the same name for it."""
    return SigningKey(hashlib.sha256(b"interlock commit key\0" + secret).hexdigest()[:16], secret)


def _until(entry: Entry, end: float) -> Entry:
    """Return the key with an expiry time; an earlier one that it has stays."""
    known = entry.key.not_after
    return replace(entry, key=replace(entry.key, not_after=end if known is None else min(end, known)))


def _lives(entry: Entry, now: float) -> bool:
    return entry.key.not_after is None or now < entry.key.not_after


def _to_json(entries: Sequence[Entry]) -> bytes:
    rows = [
        {"secret": entry.key.secret.hex(), "created_at": entry.created_at, "not_after": entry.key.not_after}
        for entry in entries
    ]
    return json.dumps({"version": 1, "keys": rows}, indent=1).encode()


def _from_json(data: bytes) -> tuple[Entry, ...]:
    """Read what `_to_json` gave. Raises ValueError, TypeError or KeyError for anything else."""
    content = json.loads(data)
    if content["version"] != 1 or not content["keys"]:
        raise ValueError("another version, or no keys")
    rows = ((_key_of(bytes.fromhex(row["secret"])), row["not_after"], row["created_at"]) for row in content["keys"])
    entries = tuple(
        Entry(replace(key, not_after=None if end is None else float(end)), float(made)) for key, end, made in rows
    )
    if any((entry.key.not_after is None) is not (place == 0) for place, entry in enumerate(entries)):
        raise ValueError("the first key signs and has no end, and every other has one")
    return entries


def _decode(text: str, place: int) -> bytes:
    """Decode a secret from hex or base64; any other text is the secret itself."""
    form, secret = "text", text.encode("utf-8", "surrogateescape")
    with contextlib.suppress(ValueError):
        form, secret = "hex", bytes.fromhex(text)
    if form == "text" and _BASE64.fullmatch(standard := text.replace("-", "+").replace("_", "/")):
        form, secret = "base64", base64.b64decode(standard)
    if len(secret) < MIN_SECRET or len(set(secret)) < MIN_DIFFERENT:
        raise ConfigError(
            f"{COMMIT_SECRET}: secret {place}, read as {form}, has {len(secret)} bytes, {len(set(secret))} of them "
            f"different; {MIN_SECRET} at random are the least: `openssl rand -hex 32` gives such a one"
        )
    return secret
