"""The operators' passkeys: public keys in a JSON file of the state folder that only its owner can read."""

from __future__ import annotations

import contextlib
import fcntl
import json
from typing import TYPE_CHECKING, Any, Final

from proxy.errors import ConfigError
from proxy.system.secret_files import write_private

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FIELDS: Final = {"operator": str, "stamp": str, "label": str, "rp_id": str, "public_key": str, "count": int}


class PasskeyFile:
    """Passkeys by their id. An entry belongs to one operator's `stamp`: revoked and added again is somebody else.

    Every method raises ConfigError or OSError where the file cannot be read or written.
    """

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / "passkeys.json"

    def of(self, operator: str, stamp: str) -> dict[str, dict[str, Any]]:
        """Return the passkeys of an operator."""
        return {key: one for key, one in self._read().items() if (one["operator"], one["stamp"]) == (operator, stamp)}

    @contextlib.contextmanager
    def update(self) -> Iterator[dict[str, dict[str, Any]]]:
        """Yield all passkeys for a change, and write them back unless the block raises."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A lock beside the file, which is replaced: of two logins with one counter, one gets in.
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entries = self._read()
            yield entries
            write_private(self.path, json.dumps(entries, indent=1).encode())

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            entries = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise ConfigError(f"{self.path} is not valid JSON ({error}); restore it or delete it") from error
        if not isinstance(entries, dict) or not all(_is_passkey(one) for one in entries.values()):
            raise ConfigError(f"{self.path} does not contain passkeys; restore it or delete it")
        return entries


def _is_passkey(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and isinstance(one.get("added"), int | float)
        and all(type(one.get(name)) is kind for name, kind in _FIELDS.items())
    )
