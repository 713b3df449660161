"""fleet.json in the state folder: which fleet this replica belongs to, and how new what it knows is."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Final

from proxy.errors import ConfigError
from proxy.system.secret_files import write_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FILE: Final = "fleet.json"


@dataclass(frozen=True, slots=True)
class Membership:
    """A replica of a fleet. `generations` has the newest of each shared row that was ever taken over here."""

    fleet_id: str
    replica_id: str
    generations: Mapping[str, int] = field(default_factory=dict[str, int])


class MembershipFile:
    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / FILE
        self._lock = state_dir / "fleet.lock"

    def read(self) -> Membership | None:
        """Return the membership; None where the folder belongs to no fleet. Raises ConfigError where it is damaged."""
        try:
            value = json.loads(self.path.read_bytes())
            known = {str(name): int(number) for name, number in value["generations"].items()}
            return Membership(str(value["fleet_id"]), str(value["replica_id"]), known)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{self.path} cannot be read ({error}); restore it, or `interlock join` anew with an empty state folder"
            ) from error

    def write(self, membership: Membership) -> None:
        write_private(self.path, json.dumps(asdict(membership), indent=1).encode())

    def note(self, name: str, generation: int) -> None:
        """Remember that a row of this generation was taken over. The caller holds the lock."""
        known = self.read()
        if known is not None and known.generations.get(name, 0) < generation:
            self.write(replace(known, generations={**known.generations, name: generation}))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep this machine's other processes from changing the mirror meanwhile."""
        handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
