"""Pins that replicas share: read from the state folder, changed in the store first."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from proxy.errors import ConfigError, InterlockError, PinsUnavailableError, StoreForbiddenError, StoreUnavailableError
from proxy.fleet.sealing import SealError
from proxy.fleet.shared_state import PINS
from proxy.store.pin_files import PinFiles, file_stem

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.fleet.bridge import StoreBridge
    from proxy.fleet.shared_state import SharedState
    from proxy.gate.tool_pins import ServerPins
    from proxy.store.fleet_store import PinsRow

    type Change = Callable[[ServerPins | None], ServerPins | None]


REST: Final = 3.0  # how many times as long as a vain question took nothing is asked


class SharedPins(PinFiles):
    """The `tool_pins.PinStore` of a replica. What changes nothing asks nobody; what does is refused without the store.

    So two replicas that see a server first, at the same moment, agree on what they saw: the store takes one, and the
    other is compared with it.
    """

    def __init__(self, state: SharedState, bridge: StoreBridge) -> None:
        super().__init__(state.mirror.state_dir)
        self._state = state
        self._bridge = bridge
        self._rest_until = 0.0

    def update(self, server: str, change: Change) -> ServerPins | None:
        known = self._read(server)
        if change(known) is known:
            return known
        return self._share(server, change)

    def approve(
        self,
        server: str,
        tool: str | None,
        digest: str | None,
        now: float,
        *,
        instructions: bool = False,
        card: str | None = None,
    ) -> None:
        self.refresh()
        super().approve(server, tool, digest, now, instructions=instructions, card=card)

    def refresh(self) -> None:
        """Take over what is newer in the store. Raises PinsUnavailableError."""
        try:
            self._bridge.run(self._state.catch_up)
        except StoreUnavailableError as error:
            raise PinsUnavailableError(f"the pins that replicas share cannot be read: {error}") from error

    def _share(self, server: str, change: Change) -> ServerPins | None:
        began = time.monotonic()
        if began < self._rest_until:
            raise PinsUnavailableError(
                "the pins that replicas share cannot be changed: the store did not answer just now"
            )
        self.check_room(server)  # before the store has it: all replicas have to take it over
        attempt = _Attempt(self._state, server, change)
        try:
            row = self._bridge.run(lambda store: store.change_pins(file_stem(server), attempt))
        except StoreForbiddenError as error:
            raise PinsUnavailableError(
                f"this database login may not approve pins: {error}; use one in the role interlock_admin"
            ) from error
        except StoreUnavailableError as error:
            # Whoever waits here holds up a worker: a server that changes all the time must not do so all the time.
            self._rest_until = time.monotonic() + REST * (time.monotonic() - began)
            raise PinsUnavailableError(f"the pins that replicas share cannot be changed: {error}") from error
        if attempt.failed is not None:
            raise attempt.failed
        pins = self._state.take_pins(row) if row is not None else None
        self._looks.pop(server, None)
        return pins


class _Attempt:
    """Makes the next row of what the store has; an error is kept for the caller, and changes nothing."""

    def __init__(self, state: SharedState, server: str, change: Change) -> None:
        self._state = state
        self._server = server
        self._change = change
        self.failed: InterlockError | None = None

    def __call__(self, row: PinsRow | None) -> PinsRow | None:
        self.failed = None
        try:
            known = self._open(row)
            made = self._change(known)
        except (ConfigError, PinsUnavailableError) as error:
            self.failed = error
            return None
        if made is known:
            return None
        return self._state.seal_pins(self._server, made, (row.generation if row else 0) + 1)

    def _open(self, row: PinsRow | None) -> ServerPins | None:
        newest = self._state.known(PINS + file_stem(self._server))
        if (row.generation if row else 0) < newest:
            raise PinsUnavailableError(
                f"the database has older pins of {self._server!r} than this replica (generation {newest}): a backup "
                "was restored, or somebody put an old row back"
            )
        if row is None:
            return None
        try:
            server, pins = self._state.open_pins(row)
        except SealError as error:
            raise PinsUnavailableError(str(error)) from error
        if server != self._server:
            raise PinsUnavailableError(f"the shared pins of {self._server!r} are of {server!r}")
        return pins
