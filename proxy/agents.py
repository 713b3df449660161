"""Agents and their tokens: names in the clear, tokens only as hashes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import re
import secrets
import time
from typing import TYPE_CHECKING, Any

from proxy.errors import ConfigError
from proxy.files import write_private

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
HASH = re.compile(r"[0-9a-f]{64}")
TOKEN_PREFIX = "ilk_"  # noqa: S105  a marker that secret scanners can look for, not a secret


class AgentBook:
    """The agents of one state folder. A change on disk is seen at the next look."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / "agents.json"
        self._stamp: tuple[int, int] | None = None
        self._agents: dict[str, dict[str, Any]] = {}

    def verify(self, name: str, token: str) -> bool:
        """Say whether `token` is the one `name` was given, in constant time."""
        known = self._read().get(name, {}).get("token_sha256", "")
        return hmac.compare_digest(known, _hash(token)) and bool(known)

    def names(self) -> dict[str, float]:
        """Give each agent's name and when it was added."""
        return {name: float(entry["added"]) for name, entry in self._read().items()}

    def add(self, name: str) -> str:
        """Add an agent and give its token, which is shown this once and stored as a hash.

        Raises ConfigError for a name that is taken or of a wrong form.
        """
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"agent name {name!r} cannot be used; take 1 to 64 letters, digits, dots, dashes and underscores"
            )
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        with self._changing() as agents:
            if name in agents:
                raise ConfigError(
                    f"agent {name!r} is there already; `interlock agents revoke {name}` first for a new token"
                )
            agents[name] = {"token_sha256": _hash(token), "added": time.time()}
        return token

    def revoke(self, name: str) -> None:
        """Remove an agent. Raises ConfigError where there is none of that name."""
        with self._changing() as agents:
            if name not in agents:
                known = ", ".join(sorted(agents)) or "none"
                raise ConfigError(f"there is no agent {name!r}; known agents: {known}")
            del agents[name]

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, dict[str, Any]]]:
        """Give the agents to change, and write them; one process at a time, so that no change undoes another."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            agents = dict(self._read())
            yield agents
            write_private(self.path, json.dumps(agents, indent=1).encode())

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return {}
        stamp = (stat.st_mtime_ns, stat.st_ino)
        if stamp != self._stamp:
            self._agents = self._parse(self.path.read_bytes())
            self._stamp = stamp
        return self._agents

    def _parse(self, data: bytes) -> dict[str, dict[str, Any]]:
        try:
            agents = json.loads(data)
        except ValueError as error:
            raise ConfigError(f"{self.path} is not readable as JSON ({error}); restore it or delete it") from error
        if not isinstance(agents, dict) or not all(_is_entry(entry) for entry in agents.values()):
            raise ConfigError(f"{self.path} is not a list of agents and token hashes; restore it or delete it")
        return agents


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
