"""One-time links: `interlock console` makes one, the console takes it for a session, and it works once.

A JSON file in the state folder, which only its owner can read: hashes alone, so that even a copy of it opens nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from proxy.errors import ConfigError
from proxy.system.secret_files import write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LINK_SECONDS: Final = 600.0
PREFIX: Final = "ill_"
MAX_LINKS: Final = 100


class OneTimeLinks:
    """The links of one state folder that were made and not used. Every method raises ConfigError or OSError."""

    def __init__(self, state_dir: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = state_dir / "console_links.json"
        self._clock = clock

    def make(self, operator: str) -> str:
        """Return the secret of a new link for `operator`; it cannot be read back later."""
        secret = PREFIX + secrets.token_urlsafe(32)
        with self._update() as links:
            links[_hash(secret)] = {"operator": operator, "until": self._clock() + LINK_SECONDS}
            for digest in list(links)[:-MAX_LINKS]:
                del links[digest]
        return secret

    def take(self, secret: str) -> str | None:
        """Return the operator of a link and use it up; None where there is no such link, or no more."""
        if not secret.startswith(PREFIX):
            return None
        with self._update() as links:
            found = links.pop(_hash(secret), None)
        return found["operator"] if found is not None else None

    @contextlib.contextmanager
    def _update(self) -> Iterator[dict[str, dict[str, Any]]]:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A lock beside the file, which is replaced: of two browsers with one link, one gets in.
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            now = self._clock()
            links = {digest: one for digest, one in self._read().items() if one["until"] > now}
            yield links
            write_private(self.path, json.dumps(links).encode())

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            links = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise ConfigError(f"{self.path} is not valid JSON ({error}); delete it") from error
        if not isinstance(links, dict) or not all(_is_link(one) for one in links.values()):
            raise ConfigError(f"{self.path} does not contain one-time links; delete it")
        return links


def link_url(address: str, secret: str) -> str:
    """Return what to open in a browser."""
    # Behind `#`: a browser sends that part to nobody, so no log and no Referer has it.
    return f"{address}/login#{secret}"


def _is_link(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("operator"), str) and isinstance(one.get("until"), int | float)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
