"""Tokens of agents and operators: JSON files in the state folder, names in the clear, tokens as hashes only.

Agents call through the proxy; operators approve what agents propose. The two kinds of token have different prefixes and
separate files: an agent's token is worthless at the admin API, and an operator's at the proxy.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import re
import secrets
import time
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from proxy.core.approvals import Operator, Role
from proxy.errors import ConfigError
from proxy.system.secret_files import make_private, write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    type Entries = dict[str, dict[str, Any]]
    type Edit = Callable[[Entries], None]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
HASH = re.compile(r"[0-9a-f]{64}")
FIRST = "operator"


class SharedLists(Protocol):
    """Changes the lists that the replicas of a fleet share, and their files here. Raises ConfigError."""

    def change(self, name: str, edit: Edit) -> None:
        """Let `edit`, which may be called again, change the list as it is now; nobody else's change comes between."""


class Tokens:
    """The tokens of one role in one state folder. A change on disk is seen by the next call.

    In a fleet the file mirrors what all replicas share, and `shared` is where it is changed.
    """

    role: ClassVar[str]
    # Secret scanners find a leaked token by its prefix, and `holder` rejects a token of the other role by it.
    prefix: ClassVar[str]

    def __init__(self, state_dir: Path, shared: SharedLists | None = None) -> None:
        self.path = state_dir / f"{self.role}s.json"
        self._shared = shared
        self._stamp: tuple[int, int] | None = None
        self._entries: dict[str, dict[str, Any]] = {}

    def verify(self, name: str, token: str) -> bool:
        """Return whether `token` belongs to `name`; takes the same time for every wrong token."""
        known = self._read().get(name, {}).get("token_sha256", "")
        return hmac.compare_digest(known, _hash(token)) and bool(known)

    def holder(self, token: str) -> str | None:
        """Return the name that `token` belongs to, or None."""
        digest, found = _hash(token), None
        # No early exit: how long it takes must not show whether, or where in the file, the token matched.
        for name, entry in self._read().items():
            if hmac.compare_digest(entry["token_sha256"], digest):
                found = name
        return found if token.startswith(self.prefix) else None

    def names(self) -> dict[str, float]:
        return {name: float(entry["added"]) for name, entry in self._read().items()}

    def add(self, name: str) -> str:
        """Add `name` and return its new token, which cannot be read back later.

        Raises ConfigError if the name is taken or not allowed.
        """
        return self._add(name, {})

    def _add(self, name: str, more: dict[str, Any]) -> str:
        token = self.new_token()

        def edit(entries: Entries) -> None:
            if name in entries:
                anew = f"`interlock {self.role}s revoke {name}`"
                raise ConfigError(f"{self.role} {name!r} already exists; for a new token, run {anew} first")
            entries[name] = self._entry(name, token) | more

        self._change(edit)
        return token

    def revoke(self, name: str) -> None:
        """Remove a name and its token. Raises ConfigError if the name is unknown."""

        def edit(entries: Entries) -> None:
            self._check_known(name, entries)
            del entries[name]

        self._change(edit)

    def _check_known(self, name: str, entries: Collection[str]) -> None:
        if name not in entries:
            known = ", ".join(sorted(entries)) or "none"
            raise ConfigError(f"there is no {self.role} {name!r}; known {self.role}s: {known}")

    def new_token(self) -> str:
        return self.prefix + secrets.token_urlsafe(32)

    def _entry(self, name: str, token: str) -> dict[str, Any]:
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"{self.role} name {name!r} is not allowed; use 1 to 64 letters, digits, dots, dashes and underscores"
            )
        return {"token_sha256": _hash(token), "added": time.time()}

    def _change(self, edit: Edit) -> None:
        if self._shared is not None:
            self._shared.change(f"{self.role}s", edit)
            return
        with self._update() as entries:
            edit(entries)

    @contextlib.contextmanager
    def _update(self) -> Iterator[Entries]:
        """Yield the entries for a change and write them back."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A lock file of its own: write_private replaces the JSON file, and a lock on a replaced file excludes nobody.
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entries = dict(self._read())
            yield entries
            write_private(self.path, encode_entries(entries))

    def _read(self) -> Entries:
        try:
            stat = self.path.stat()
        except FileNotFoundError:
            return {}
        # Every write replaces the file, so a second write within one tick of the clock still changes the inode.
        stamp = (stat.st_mtime_ns, stat.st_ino)
        if stamp == self._stamp:
            return self._entries
        try:
            self._entries = parse_entries(self.path.read_bytes())
        except ValueError as error:
            raise ConfigError(f"{self.path} has no {self.role}s ({error}); restore it or delete it") from error
        self._stamp = stamp
        return self._entries


class AgentTokens(Tokens):
    role = "agent"
    prefix = "ilk_"


class OperatorTokens(Tokens):
    role = "operator"
    prefix = "ilo_"

    def __init__(self, state_dir: Path, shared: SharedLists | None = None) -> None:
        super().__init__(state_dir, shared)
        self.token_file = state_dir / "keys" / "operator.token"

    def ensure(self) -> None:
        """Create the first operator, with its token in `token_file`, unless there has ever been an operator.

        Raises ConfigError if `token_file` exists and contains no operator token.
        """
        if self.path.exists():
            return
        # The file comes first: after a crash in between, the next start takes the token from it.
        make_private(self.token_file, f"{self.new_token()}\n".encode())
        token = read_token(self.token_file)
        if not token.startswith(self.prefix):
            raise ConfigError(f"{self.token_file} contains no operator token; delete it and a new one is made")
        with self._update() as entries:
            if not entries:
                entries[FIRST] = self._entry(FIRST, token) | {"role": str(Role.ADMIN)}

    def add(self, name: str, role: Role = Role.APPROVER, agents: Collection[str] = ()) -> str:
        """Add an operator and return the new token. Raises ConfigError if the name is taken or not allowed."""
        return self._add(name, {"role": str(role), "agents": sorted(set(agents))})

    def change(self, name: str, role: Role | None = None, agents: Collection[str] | None = None) -> Operator:
        """Change what an operator may do, or which agents run on the operator's behalf; return it as it is then.

        Raises ConfigError if there is no such operator.
        """
        changes: dict[str, Any] = {"role": str(role)} if role is not None else {}
        changes |= {"agents": sorted(set(agents))} if agents is not None else {}

        def edit(entries: Entries) -> None:
            self._check_known(name, entries)
            entries[name] = {**entries[name], **changes}

        self._change(edit)
        return _operator(name, self._read()[name])

    def operators(self) -> list[Operator]:
        return [_operator(name, entry) for name, entry in self._read().items()]

    def operator(self, token: str) -> Operator | None:
        """Return the operator that `token` belongs to, or None."""
        name = self.holder(token)
        return _operator(name, self._read()[name]) if name is not None else None

    def named(self, name: str) -> Operator | None:
        """Return the operator of that name, or None: one that was revoked is none, whatever session remains."""
        entry = self._read().get(name)
        return _operator(name, entry) if entry is not None else None

    def revoke(self, name: str) -> None:
        """Remove an operator, and `token_file` if it contains that operator's token."""
        super().revoke(name)
        if self.token_file.exists() and self.holder(read_token(self.token_file)) is None:
            self.token_file.unlink()


def read_token(path: Path) -> str:
    """Return the token in a file. Raises ConfigError if the file cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the token file {path} ({error}); name another with --token-file") from error


def parse_entries(data: bytes) -> dict[str, dict[str, Any]]:
    """Return the entries of a list of tokens. Raises ValueError for anything else."""
    entries = json.loads(data)
    # Fail closed: an entry without a proper hash could otherwise match the empty string.
    if not isinstance(entries, dict) or not all(_is_entry(entry) for entry in entries.values()):
        raise ValueError("it does not contain names and token hashes")
    return entries


def encode_entries(entries: dict[str, dict[str, Any]]) -> bytes:
    return json.dumps(entries, indent=1).encode()


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("added"), int | float)
        and isinstance(digest := entry.get("token_sha256"), str)
        and HASH.fullmatch(digest) is not None
        and entry.get("role", Role.APPROVER) in tuple(Role)
        and isinstance(agents := entry.get("agents", []), list)
        and all(isinstance(agent, str) for agent in agents)
    )


def _operator(name: str, entry: dict[str, Any]) -> Operator:
    # Entries of before there were roles have none. They could approve and nothing more, and so they can now.
    return Operator(name, Role(entry.get("role", Role.APPROVER)), frozenset(entry.get("agents", ())))


def _hash(token: str) -> str:
    # Tokens are 256 random bits: nobody guesses one, so a slow password hash would only cost time on every request.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
