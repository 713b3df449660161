"""The step that this replica follows, in its state folder: every process of the replica watches the file.

It holds the signed step and the policies that it names, and is verified each time it is read: at a start without the
database too. It is replaced only by a step with a higher number, or by the same step once its canary has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from proxy.core.rollout import SignedStep
from proxy.errors import PolicyError
from proxy.rollout.bundle import MAX_BYTES, digest_of, parse_bundle
from proxy.rollout.step import verify
from proxy.system.replica_name import replica_name
from proxy.system.secret_files import write_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from proxy.audit.signing_keys import PublicKey
    from proxy.rollout.bundle import Bundle
    from proxy.rollout.step import Step, Version

FOLDER: Final = "policy"
MAX_FILE: Final = 8 * MAX_BYTES


@dataclass(frozen=True, slots=True)
class Release:
    """A step, the policies that it names by their digests, and why its canary was ended, if it was."""

    signed: SignedStep
    bundles: Mapping[str, str]
    returned: str | None = None

    def verified(self, keys: Mapping[str, PublicKey]) -> VerifiedRelease:
        """Return what it says. Raises PolicyError unless a trusted key signed it, and the policies are those."""
        step = verify(self.signed, keys)
        bundles: dict[str, Bundle] = {}
        for version in step.versions:
            text = self.bundles.get(version.digest)
            if text is None or digest_of(text) != version.digest:
                raise PolicyError(f"the policy of version {version.number} is not the one that was signed")
            bundles[version.digest] = parse_bundle(text)
        return VerifiedRelease(step, bundles, self.returned)


@dataclass(frozen=True, slots=True)
class VerifiedRelease:
    step: Step
    bundles: Mapping[str, Bundle]
    returned: str | None = None

    def bundle(self, version: Version) -> Bundle:
        return self.bundles[version.digest]

    @property
    def has_canary(self) -> bool:
        """Whether two versions are in force somewhere."""
        return self.step.canary is not None and self.returned is None

    def canary_at(self, replica: str) -> bool:
        """Return whether the canary is in force at a replica, for all of its agents."""
        canary = self.step.canary
        return canary is not None and self.returned is None and replica in canary.replicas

    @property
    def canary_agents(self) -> tuple[str, ...]:
        """Whose calls the canary decides, at every replica."""
        return self.step.canary.agents if self.step.canary is not None and self.returned is None else ()


class ReleaseFile:
    """The file of one state folder."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._folder = state_dir / FOLDER
        self.path = self._folder / "step.json"

    def stamp(self) -> object:
        """Return what changes whenever the file does."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def read(self) -> Release | None:
        """Return what the file holds; None where there is none. Raises PolicyError where it cannot be used."""
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_FILE + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from error
        try:
            value: dict[str, Any] = json.loads(data)
            return Release(SignedStep(**value["signed"]), dict(value["bundles"]), value["returned"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._unusable(repr(error)[:200]) from error

    def learn(self, release: Release) -> bool:
        """Keep a release that was verified and can be used, unless a newer one is there; return whether it is new."""
        with self._locked():
            try:
                before = self.read()
            except PolicyError:
                before = None  # what cannot be read is in force nowhere
            if before is not None and not _follows(before, release):
                return False
            write_private(self.path, json.dumps(asdict(release)).encode())
        return True

    def end_canary(self, number: int, reason: str) -> bool:
        """Note that the canary of a step has ended; return whether that is new."""
        before = self.read()
        if before is None or before.signed.number != number or before.returned is not None:
            return False
        return self.learn(replace(before, returned=reason))

    def replica(self) -> str:
        """Return the name of this replica."""
        return replica_name(self._state_dir)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(self._folder / "step.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _unusable(self, why: str) -> PolicyError:
        return PolicyError(
            f"{self.path} cannot be used ({why}); it holds the policy in force: restore it, "
            "or remove it while the database can be reached"
        )


def _follows(before: Release, after: Release) -> bool:
    if after.signed.number != before.signed.number:
        return after.signed.number > before.signed.number
    # The same step: only the end of its canary is news, and an end is never taken back.
    return after.signed == before.signed and before.returned is None and after.returned is not None
