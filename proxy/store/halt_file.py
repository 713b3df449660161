"""The halts that are in force on this machine: a file in the state folder that every worker watches.

It mirrors the store, so that halts outlive a restart and a store that is away, and it holds those that the store has
not got yet. `HALT`, a file that somebody may make there by hand, halts everything while it is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from proxy.core.halts import Halt, HaltList
from proxy.errors import ConfigError
from proxy.system.secret_files import write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MIRROR: Final = "halts.json"
BY_HAND: Final = "HALT"
MAX_BYTES: Final = 4 << 20
MAX_REASON: Final = 1000

_NONE: Final = HaltList("", 0)

type Stamp = tuple[tuple[int, int, int] | None, tuple[int, int, int] | None]


@dataclass(frozen=True, slots=True)
class LocalHalts:
    """What the file holds: the store's list as last seen, and halts that the store has not got yet."""

    known: HaltList = _NONE
    own: tuple[Halt, ...] = ()


class HaltFile:
    """The files of one state folder. Raises ConfigError where they cannot be read or written."""

    def __init__(self, state_dir: Path) -> None:
        self._mirror = state_dir / MIRROR
        self._by_hand = state_dir / BY_HAND
        self._lock = state_dir / "halts.lock"

    def stamp(self) -> Stamp:
        """Return what changes whenever one of the files does."""
        return _stamp(self._mirror), _stamp(self._by_hand)

    def read(self) -> LocalHalts:
        """Return what the mirror holds; nothing where there is none."""
        try:
            data = self._mirror.read_bytes()
        except FileNotFoundError:
            return LocalHalts()
        except OSError as error:
            raise _unusable(self._mirror, error) from error
        try:
            return _parse(json.loads(data[:MAX_BYTES]))
        except (ValueError, KeyError, TypeError) as error:
            raise _unusable(self._mirror, error) from error

    def in_force(self) -> tuple[Halt, ...]:
        """Return every halt that is in force here."""
        local = self.read()
        own = tuple(halt for halt in local.own if halt.halt_id not in {known.halt_id for known in local.known.halts})
        return (*local.known.halts, *own, *self._halt_by_hand())

    def _halt_by_hand(self) -> tuple[Halt, ...]:
        try:
            with self._by_hand.open("rb") as file:
                said = file.read(MAX_REASON).decode("utf-8", "replace").strip()
                made = os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return ()
        except OSError:
            # There, and not to be read: whoever made it wants everything halted.
            said, made = "", 0.0
        return (Halt("by-hand", said or f"the file {BY_HAND} is there", "whoever made the file", made, origin="file"),)

    def learn(self, known: HaltList) -> bool:
        """Take over the store's list, unless a newer one is known already; return whether anything changed."""

        def change(local: LocalHalts) -> LocalHalts:
            if local.known.store_id not in ("", known.store_id):
                # Another database than before: what was halted stays so, until somebody resumes it.
                carried = tuple(halt for halt in local.known.halts if halt not in local.own)
                return LocalHalts(known, _without(local.own + carried, known))
            if known.generation < local.known.generation:
                # Asked before the last change, or a backup was restored. Nothing is dropped by it, and nothing missed.
                new = _without(known.halts, local.known)
                return replace(local, known=replace(local.known, halts=local.known.halts + new)) if new else local
            return LocalHalts(known, _without(local.own, known))

        return self.update(change)

    def add(self, halt: Halt) -> None:
        """Put a halt in force here, before or without the store."""
        self.update(lambda local: replace(local, own=(*local.own, halt)))

    def remove(self, halt_ids: set[str]) -> None:
        """End halts on this machine; for those that the store has, it has to be told first."""

        def change(local: LocalHalts) -> LocalHalts:
            known, own = (
                tuple(halt for halt in halts if halt.halt_id not in halt_ids)
                for halts in (local.known.halts, local.own)
            )
            return LocalHalts(replace(local.known, halts=known), own)

        self.update(change)

    def remove_by_hand(self) -> None:
        try:
            self._by_hand.unlink(missing_ok=True)
        except OSError as error:
            raise _unusable(self._by_hand, error) from error

    def update(self, change: Callable[[LocalHalts], LocalHalts]) -> bool:
        """Change what the mirror holds, under a lock; return whether it is another now."""
        with self._locked():
            before = self.read()
            after = change(before)
            if after == before:
                return False
            try:
                write_private(self._mirror, json.dumps(_value(after), indent=1).encode())
            except OSError as error:
                raise _unusable(self._mirror, error) from error
        return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _unusable(self._lock, error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _without(own: tuple[Halt, ...], known: HaltList) -> tuple[Halt, ...]:
    there = {halt.halt_id for halt in known.halts}
    return tuple(halt for halt in own if halt.halt_id not in there)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from error
    return found.st_mtime_ns, found.st_size, found.st_ino


def _value(local: LocalHalts) -> dict[str, Any]:
    return {
        "store_id": local.known.store_id,
        "generation": local.known.generation,
        "halts": [halt.data() for halt in local.known.halts],
        "own": [halt.data() for halt in local.own],
    }


def _parse(value: Any) -> LocalHalts:
    known = HaltList(str(value["store_id"]), int(value["generation"]), tuple(Halt(**one) for one in value["halts"]))
    return LocalHalts(known, tuple(Halt(**one) for one in value["own"]))


def _unusable(path: Path, error: Exception) -> ConfigError:
    return ConfigError(
        f"it cannot be known what is halted: {path} cannot be used ({error}); "
        "restore the file, or remove it if you are sure that nothing is to stay halted"
    )
