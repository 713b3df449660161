"""Agents and their tokens: names in the clear, tokens only as hashes."""

from __future__ import annotations

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
    from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
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
        agents = dict(self._read())
        if name in agents:
            raise ConfigError(
                f"agent {name!r} is there already; `interlock agents revoke {name}` first for a new token"
            )
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        agents[name] = {"token_sha256": _hash(token), "added": time.time()}
        self._write(agents)
        return token

    def revoke(self, name: str) -> None:
        """Remove an agent. Raises ConfigError where there is none of that name."""
        agents = dict(self._read())
        if name not in agents:
            known = ", ".join(sorted(agents)) or "none"
            raise ConfigError(f"there is no agent {name!r}; known agents: {known}")
        del agents[name]
        self._write(agents)

    def _write(self, agents: dict[str, dict[str, Any]]) -> None:
        write_private(self.path, json.dumps(agents, indent=1).encode())

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return {}
        stamp = (stat.st_mtime_ns, stat.st_ino)
        if stamp != self._stamp:
            try:
                self._agents = json.loads(self.path.read_bytes())
            except ValueError as error:
                raise ConfigError(f"{self.path} is not readable as JSON ({error}); restore it or delete it") from error
            self._stamp = stamp
        return self._agents


def _hash(token: str) -> str:
    # Tokens are 256 random bits, so a fast hash is as good as a slow one.
    return hashlib.sha256(token.encode()).hexdigest()
