"""What one replica makes of the shared rows: opens and checks them, and puts them into its state folder.

What cannot be checked is not taken over: the last that could stays in force, and `catch_up` says why.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final, cast

from proxy.errors import ConfigError, PinsUnavailableError
from proxy.fleet import sealing
from proxy.fleet.membership import MembershipFile
from proxy.fleet.mirror import LISTS, OPTIONAL_LISTS, POLICY_KEYS, SECRETS, STATE, VAULT, Mirror
from proxy.fleet.sealing import SealError
from proxy.gate.tool_pins import Pin, ServerPins, from_json, to_json
from proxy.identity.token_file import parse_entries
from proxy.rollout.keys import keys_of_list
from proxy.store.fleet_store import DocumentRow, PinsRow
from proxy.store.pin_files import MAX_BYTES, PinFiles, file_stem
from proxy.vault import vault_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from proxy.config import Settings
    from proxy.fleet.key_encryption_key import KeyEncryptionKey
    from proxy.store.fleet_store import FleetStore

SECRET: Final = "secret:"  # noqa: S105  how the names of rows begin
LIST: Final = "list:"
PINS: Final = "pins:"
FEW: Final = 16  # rows that are asked for one by one


class SharedState:
    """A replica's view of its fleet. `kek` is needed for keys alone."""

    def __init__(self, settings: Settings, fleet_id: str, kek: KeyEncryptionKey | None) -> None:
        self.fleet_id = fleet_id
        self.kek = kek
        self.mirror = Mirror(settings)
        self.membership = MembershipFile(settings.state_dir)
        self.pin_files = PinFiles(settings.state_dir)
        self._state_key = self.mirror.secret(STATE)

    @property
    def state_key(self) -> bytes:
        if self._state_key is None:
            raise SealError(f"{self.mirror.file(STATE)} is missing; `interlock join` anew with an empty state folder")
        return self._state_key

    def use_state_key(self, key: bytes) -> None:
        """Check lists and pins with a key that is not in the folder yet."""
        self._state_key = key

    def known(self, name: str) -> int:
        """Return the newest generation of a row that was ever taken over here; 0 where there was none."""
        membership = self.membership.read()
        return membership.generations.get(name, 0) if membership else 0

    def open_secret(self, row: DocumentRow) -> bytes:
        if self.kek is None:
            raise ConfigError("the keys of the fleet need the setting key_encryption_key")
        return sealing.unseal(self.kek, self.fleet_id, row.name, row.generation, row.body, row.seal)

    def seal_secret(self, name: str, generation: int, plain: bytes) -> DocumentRow:
        if self.kek is None:
            raise ConfigError("the keys of the fleet need the setting key_encryption_key")
        body, nonce = sealing.seal(self.kek, self.fleet_id, SECRET + name, generation, plain)
        return DocumentRow(SECRET + name, generation, sealing.key_id(name, plain), body, nonce)

    def open_list(self, row: DocumentRow) -> dict[str, dict[str, Any]]:
        sealing.check(self.state_key, self.fleet_id, row.name, row.generation, row.body, row.seal)
        try:
            if row.name == LIST + POLICY_KEYS:
                keys_of_list(row.body)
            elif row.name == LIST + VAULT:
                vault_file.parse(row.body)
            else:
                return parse_entries(row.body)
            return cast("dict[str, dict[str, Any]]", json.loads(row.body))
        except ValueError as error:
            raise SealError(f"the shared {row.name} cannot be read: {error}") from error

    def seal_list(self, name: str, generation: int, body: bytes) -> DocumentRow:
        seal = sealing.authenticate(self.state_key, self.fleet_id, LIST + name, generation, body)
        return DocumentRow(LIST + name, generation, sealing.key_id(STATE, self.state_key), body, seal)

    def open_pins(self, row: PinsRow) -> tuple[str, ServerPins | None]:
        """Return the server and its pins; None where they were forgotten. Raises SealError."""
        sealing.check(self.state_key, self.fleet_id, PINS + row.name, row.generation, row.body, row.seal)
        try:
            value = json.loads(row.body)
            server = str(value["server"])
            pins = from_json(value) if "tools" in value else None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SealError(f"the shared pins {row.name} cannot be read: {error}") from error
        # What the database guards must be what the pins say: else a proxy could tell it one thing, and us another.
        if (row.name, row.approvals, row.listing, row.marks) != (file_stem(server), *_summary(pins)):
            raise SealError(f"the shared pins of {server!r} do not say what the columns beside them say")
        return server, pins

    def seal_pins(self, server: str, pins: ServerPins | None, generation: int) -> PinsRow:
        name = file_stem(server)
        body = json.dumps({"server": server, **(to_json(pins) if pins else {"forgotten": True})}).encode()
        if len(body) > MAX_BYTES:
            raise PinsUnavailableError(f"a server's pins would take more than {MAX_BYTES} bytes")
        seal = sealing.authenticate(self.state_key, self.fleet_id, PINS + name, generation, body)
        return PinsRow(name, generation, *_summary(pins), body, seal)

    def take_document(self, row: DocumentRow) -> None:
        """Put a document into the mirror, unless a newer one is known. Raises SealError for one that is not ours."""
        kind, _, name = row.name.partition(":")
        if name not in {"secret": SECRETS, "list": (*LISTS, *OPTIONAL_LISTS)}.get(kind, ()):
            return  # a newer version's
        data = self.open_secret(row) if kind == "secret" else row.body
        if kind == "list":
            self.open_list(row)
        with self.membership.locked():
            if row.generation < self.known(row.name):
                return
            if kind == "secret":
                self.mirror.put_secret(name, data)
            else:
                self.mirror.put_list(name, data)
            self.membership.note(row.name, row.generation)
        if name == STATE:
            self._state_key = data

    def take_pins(self, row: PinsRow) -> ServerPins | None:
        """Put a server's pins into the mirror, unless newer ones are known; return them."""
        server, pins = self.open_pins(row)
        with self.membership.locked():
            if row.generation >= self.known(PINS + row.name):
                self.pin_files.put(server, pins)
                self.membership.note(PINS + row.name, row.generation)
        return pins

    async def catch_up(self, store: FleetStore, *, everything: bool = False) -> list[str]:
        """Take over what is newer in the store; return what could not be. `everything`: also what should be known."""
        fleet = await store.fleet()
        if fleet is None or fleet.fleet_id != self.fleet_id:
            there = f"the fleet {fleet.fleet_id}" if fleet else "no fleet"
            return [f"this replica belongs to the fleet {self.fleet_id}, and the database has {there}"]
        other_key = [] if self.kek is None else await self._other_key(store, fleet.kek_id, everything=everything)
        theirs, known = await store.generations(), self.membership.read()
        ours = known.generations if known else {}
        problems = [*other_key, *_lost(theirs, ours)]
        newer = [name for name, number in theirs.items() if everything or number > ours.get(name, 0)]
        # All in two questions where there are many.
        rows: dict[str, DocumentRow | PinsRow] = {}
        if len(newer) > FEW:
            rows = {row.name: row for row in await store.documents()}
            rows |= {PINS + row.name: row for row in await store.pins()}
        # First the key that lists and pins are checked with.
        for name in sorted(newer, key=lambda name: (name != SECRET + STATE, name)):
            if theirs[name] < ours.get(name, 0) or (name.startswith(SECRET) and not self._opens(fleet.kek_id)):
                continue
            try:
                await self._take(store, name, rows)
            except (SealError, PinsUnavailableError, OSError) as error:
                problems.append(str(error))
        return problems

    async def _take(self, store: FleetStore, name: str, rows: Mapping[str, DocumentRow | PinsRow]) -> None:
        row = rows.get(name)
        if row is None and name.startswith(PINS):
            row = await store.server_pins(name.removeprefix(PINS))
        elif row is None:
            row = await store.document(name)
        if isinstance(row, PinsRow):
            self.take_pins(row)
        elif row is not None:
            self.take_document(row)

    def _opens(self, kek_id: str) -> bool:
        return self.kek is not None and self.kek.key_id == kek_id

    async def _other_key(self, store: FleetStore, kek_id: str, *, everything: bool) -> list[str]:
        """Say that the fleet's keys are sealed with another key, where that matters."""
        if self._opens(kek_id):
            return []
        ours = self.mirror.key_ids()
        theirs = {row.name.removeprefix(SECRET): row.key_id for row in await store.documents() if _is_secret(row)}
        # The same keys sealed anew: a replica that runs goes on, until it is given the new key at its next start.
        if not everything and all(theirs.get(name) == key_id for name, key_id in ours.items()):
            return []
        own = self.kek.key_id if self.kek else "none"
        told = f"the fleet's keys are sealed with the key-encryption key {kek_id}, and this replica has {own}"
        return [f"{told}; give it the right one and start it again"]


def _is_secret(row: DocumentRow) -> bool:
    return row.name.startswith(SECRET)


def _lost(theirs: dict[str, int], ours: Any) -> Iterator[str]:
    for name, number in ours.items():
        if theirs.get(name, 0) < number:
            yield (
                f"the database has an older {name} (generation {theirs.get(name, 0)}) than this replica ({number}): a "
                "backup was restored, or somebody put an old row back; what is known here stays in force"
            )


def _summary(pins: ServerPins | None) -> tuple[int, bool, dict[str, list[Any]]]:
    """Return what the database looks at when a proxy changes pins: approvals, whether the list is open, and marks."""
    if pins is None:
        return 0, True, {}
    marks = {f"t:{_hash(name)}": _mark(pin) for name, pin in pins.tools.items()}
    marks |= {f"c:{_hash(name)}": _mark(pin) for name, pin in pins.cards.items()}
    marks |= {"i": _mark(pins.instructions)} if pins.instructions else {}
    return pins.approvals, pins.listing or not pins.listed, marks


def _mark(pin: Pin) -> list[Any]:
    return [pin.approved.digest if pin.approved else None, pin.drifted]


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]
