"""The credentials in force in one process. A change of the file counts from the next call on."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from proxy.core.vault import CredentialUnavailableError, Secret
from proxy.errors import ConfigError
from proxy.vault.sources import COMMAND_SECONDS, Fetched, SourceError, fetch, signature_of
from proxy.vault.vault_file import CommandSource, Document, FileSource, VaultFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from proxy.core.vault import Credential
    from proxy.vault.vault_file import Entry, Source

ERROR_SECONDS: Final = 1.0
# A file that changed this short before it was read may change again within the same tick of its clock.
RACY_NS: Final = 2_000_000_000
KEPT_VALUES: Final = 16
KEPT_NAMES: Final = 256
ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class _Known:
    """What a source gave last, and when."""

    source: Source
    at: float
    fetched: Fetched | None
    why: str = ""


class LiveVault:
    """The `Vault` of a state folder.

    A damaged file makes every credential unavailable; those that were in force before stay known, so that their
    placeholders are still recognised and refused.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        environ: Mapping[str, str] = os.environ,
        seconds: float = COMMAND_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = VaultFile(state_dir)
        self._environ = environ
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._signature: tuple[int, ...] | None = None
        self._document = Document()
        self._credentials: tuple[Credential, ...] = ()
        self._revoked: frozenset[str] = frozenset()
        self._problem: str | None = None
        self._known: dict[str, _Known] = {}
        self._flights: dict[str, tuple[Source, Future[_Known]]] = {}
        self._given: dict[str, tuple[Credential, deque[Secret]]] = {}
        self._given_out: tuple[tuple[Credential, Secret], ...] = ()

    def credentials(self) -> tuple[Credential, ...]:
        """Return all credentials in force; the same tuple until the file changes.

        Raises:
            CredentialUnavailableError: the file is damaged and was never read by this process, so that nobody knows
                what is a placeholder.
        """
        self._refresh()
        if self._problem is not None and not self._credentials and not self._revoked:
            raise CredentialUnavailableError(ALL, self._problem)
        return self._credentials

    def revoked_placeholders(self) -> frozenset[str]:
        """Return the placeholders that are refused for ever. Raises what `credentials` raises."""
        self.credentials()
        return self._revoked

    async def value(self, name: str) -> Secret:
        """Return the value as it is now: a source that changed is read again.

        Raises:
            CredentialUnavailableError: the source is missing, unreadable, empty, too slow, or the name is unknown.
        """
        entry = self._entry(name)
        known = self._fresh(name, entry) or await self._fetch(name, entry)
        # The file may have changed while the source was asked: a credential revoked meanwhile is not given out.
        if self._entry(name).source != entry.source:
            raise CredentialUnavailableError(name, "its source was changed just now")
        if known.fetched is None:
            raise CredentialUnavailableError(name, known.why)
        self._give(entry.credential(name), known.fetched.secret)
        return known.fetched.secret

    def known_values(self) -> tuple[tuple[Credential, Secret], ...]:
        """Return the values given out by this process, the newest 16 of each credential."""
        return self._given_out

    def _entry(self, name: str) -> Entry:
        self._refresh()
        if self._problem is not None:
            raise CredentialUnavailableError(name, self._problem)
        try:
            return self._document.credentials[name]
        except KeyError:
            raise CredentialUnavailableError(name, "there is no credential of this name") from None

    def _refresh(self) -> None:
        try:
            signature = self._file.signature()
            if signature is not None and signature == self._signature:
                return
            if signature is None and self._document == Document():
                self._problem = None
                return
            if signature is None:
                self._problem, self._signature = f"{self._file.path} is gone; restore it from a backup", None
                return
            self._take(self._file.read())
            self._signature = signature
        except (ConfigError, OSError) as error:
            self._problem, self._signature = str(error), None

    def _take(self, document: Document) -> None:
        self._document, self._problem = document, None
        self._credentials = tuple(entry.credential(name) for name, entry in document.credentials.items())
        self._revoked = frozenset(stone.placeholder for stone in document.revoked)

    def _fresh(self, name: str, entry: Entry) -> _Known | None:
        """Return what is known of a source, if that is how it is now."""
        known = self._known.get(name)
        if known is None or known.source != entry.source:
            return None
        age = self._clock() - known.at
        if known.fetched is None:
            return known if age < ERROR_SECONDS else None
        match entry.source:
            case FileSource(path=path):
                signature = known.fetched.signature
                return known if signature is not None and signature == signature_of(path) and _settled(known) else None
            case CommandSource():
                return known if age < entry.ttl else None
            case _:
                return None

    async def _fetch(self, name: str, entry: Entry) -> _Known:
        flight = self._flight(name, entry)
        try:
            # The limit is for files on a disk that hangs; a command has its own, which is shorter.
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(flight)), self._seconds + 1)
        except TimeoutError:
            raise CredentialUnavailableError(name, f"its source took longer than {self._seconds + 1:g} s") from None

    def _flight(self, name: str, entry: Entry) -> Future[_Known]:
        """Return the one fetch of a credential that is under way; start it if there is none."""
        with self._lock:
            source, flight = self._flights.get(name, (None, None))
            if flight is not None and source == entry.source:
                return flight
            made: Future[_Known] = Future()
            made.set_running_or_notify_cancel()  # nobody who waits can cancel it for the others
            self._flights[name] = entry.source, made
        # A daemon: a disk that hangs must not keep the process from ending.
        threading.Thread(target=self._land, args=(name, entry, made), name=f"vault-{name}", daemon=True).start()
        return made

    def _land(self, name: str, entry: Entry, made: Future[_Known]) -> None:
        known = self._ask(entry)
        with self._lock:
            self._known[name] = known
            if self._flights.get(name) == (entry.source, made):
                del self._flights[name]
        made.set_result(known)

    def _ask(self, entry: Entry) -> _Known:
        asked = self._clock()
        try:
            return _Known(entry.source, asked, fetch(entry.source, self._environ, self._seconds))
        except SourceError as error:
            return _Known(entry.source, self._clock(), None, str(error))
        except Exception as error:  # noqa: BLE001  whatever fails, the credential is unavailable
            return _Known(entry.source, self._clock(), None, f"its source failed ({type(error).__name__})")

    def _give(self, credential: Credential, secret: Secret) -> None:
        before, values = self._given.get(credential.name, (None, deque[Secret](maxlen=KEPT_VALUES)))
        if before == credential and any(each is secret for each in values):
            return
        if all(each.reveal() != secret.reveal() for each in values):
            values.append(secret)
        self._given.pop(credential.name, None)
        self._given[credential.name] = credential, values
        while len(self._given) > KEPT_NAMES:
            del self._given[next(iter(self._given))]
        self._given_out = tuple((owner, each) for owner, kept in self._given.values() for each in kept)


def _settled(known: _Known) -> bool:
    signature = known.fetched.signature if known.fetched else None
    return signature is not None and time.time_ns() - max(signature[2], signature[3]) > RACY_NS
