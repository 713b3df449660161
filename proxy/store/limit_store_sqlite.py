"""What is used of limits, among the workers of one machine: a SQLite file of its own.

A call waits for nothing but the file's lock, and for no disk: what was charged outlives the processes, `kill -9`
included. `maintain` writes it to the disk every few seconds, so a power cut may forget the last of these.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import apsw

from proxy.core.limits import Exceeded, Usage
from proxy.errors import StoreUnavailableError
from proxy.store.queries import Queries
from proxy.store.wal import use_wal
from proxy.system.package_data import sql_dir
from proxy.system.secret_files import room_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from proxy.core.limits import Charge

    type Run = Callable[..., Any]

SQL: Final = Queries("limits_sqlite")
LIMITS_FILE: Final = "store/limits.db"  # below the state folder
BUSY_MS: Final = 2_000
PLACE_SECONDS: Final = 60.0
SWEEP_ROWS: Final = 500
# Between two calls of one budget: what a float of today's seconds can tell apart.
TICK: Final = 1e-6
_BIG: Final = 1 << 62
MAX_KNOWN: Final = 4096


class SqliteLimits:
    """A `limits.LimitStore` on one file. Use it from one thread; `maintain` uses a connection of its own."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._connection: apsw.Connection | None = None
        self._places: dict[str, set[str]] = {}
        # What this connection knows of budgets, for as long as no other one writes to the file (`data_version`).
        self._known: dict[str, _Window] = {}
        self._version: int | None = None

    async def reserve(self, call_id: str, charges: Sequence[Charge]) -> Sequence[Exceeded]:
        return self._locked(lambda run: self._reserve(run, call_id, charges))

    async def look(self, charges: Sequence[Charge]) -> Sequence[Exceeded]:
        now = self._clock()

        def work(run: Run) -> list[Exceeded]:
            found = (_exceeded(run, charge, now, self._window(run, charge, now)) for charge in charges)
            return [one for one in found if one is not None]

        return self._locked(work)

    def _reserve(self, run: Run, call_id: str, charges: Sequence[Charge]) -> Sequence[Exceeded]:
        # The time is read behind the lock: else a call that waited for it would be put before those it waited for.
        now = self._clock()
        windows, exceeded, refused = [], [], False
        for charge in charges:
            window = self._window(run, charge, now)
            windows.append(window)
            if (found := _exceeded(run, charge, now, window)) is not None:
                exceeded.append(found)
                refused = refused or charge.blocks
        if refused:
            return exceeded
        for charge, window in zip(charges, windows, strict=True):
            if charge.seconds:
                self._known[charge.budget] = _add_use(run, charge, now, window, call_id)
            else:
                run(SQL["take_place"], (charge.budget, call_id, now + PLACE_SECONDS))
                self._places.setdefault(call_id, set()).add(charge.budget)
        return exceeded

    def _window(self, run: Run, charge: Charge, now: float) -> _Window:
        """Return what is in the window of a charge: as known, where that is still so, else as the file says."""
        if not charge.seconds:
            return _EMPTY
        since = now - charge.seconds
        known = self._known.get(charge.budget)
        if known is not None and known.oldest > since and known.seconds == charge.seconds:
            return known
        return _read_window(run, charge, since)

    async def give_back(self, call_id: str, charges: Sequence[Charge]) -> None:
        def work(run: Run) -> None:
            for charge in charges:
                if charge.seconds:
                    self._known.pop(charge.budget, None)
                    _give_back(run, charge.budget, call_id)

        self._locked(work)
        await self.release(call_id, charges)

    async def release(self, call_id: str, charges: Sequence[Charge]) -> None:
        taken = {charge.budget for charge in charges if not charge.seconds}
        if taken:
            self._places.pop(call_id, None)
            self._leave(call_id, taken)

    def _leave(self, call_id: str, budgets: set[str]) -> None:
        self._locked(lambda run: [run(SQL["leave_place"], (budget, call_id)) for budget in budgets])

    async def usage(self, windows: Sequence[tuple[str, float]]) -> Sequence[Usage]:
        now = self._clock()

        def read(run: Run) -> list[Usage]:
            found = []
            for beginning, seconds in windows:
                # The sign behind `"` follows it in the order of signs, so this is all that begins so.
                for (budget,) in run(SQL["budgets_like"], (beginning, beginning[:-1] + chr(ord(beginning[-1]) + 1))):
                    found.append(_usage(run, budget, seconds, now))
            return [one for one in found if one.calls]

        return self._locked(read)

    async def maintain(self) -> None:
        now, places = self._clock(), {call_id: set(budgets) for call_id, budgets in self._places.items()}
        await asyncio.to_thread(self._maintain, now, places)
        # A call may have ended meanwhile: the place that was renewed is left again.
        for call_id in places.keys() - self._places.keys():
            self._leave(call_id, places[call_id])

    def _maintain(self, now: float, places: dict[str, set[str]]) -> None:
        with contextlib.closing(self._connect()) as connection:
            try:
                for call_id, budgets in places.items():
                    for budget in budgets:
                        connection.execute(SQL["take_place"], (budget, call_id, now + PLACE_SECONDS))
                connection.execute(SQL["leave_dead_places"], (now,))
                # Few at a time: calls wait while these are deleted.
                while len(connection.execute(SQL["delete_old_uses"], (now, SWEEP_ROWS)).fetchall()) == SWEEP_ROWS:
                    pass
                # Here and not in a call: this is what waits for the disk.
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except apsw.Error as error:
                raise self._unavailable(error) from error

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _locked[T](self, work: Callable[[Run], T]) -> T:
        """Run `work` in one transaction that nobody else writes in. Raises StoreUnavailableError."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            run = self._connection.execute
            run("BEGIN IMMEDIATE")
            try:
                self._forget_if_changed(run)
                result = work(run)
                run("COMMIT")
            except BaseException:
                self._known.clear()
                if self._connection.in_transaction:
                    run("ROLLBACK")
                raise
        except (apsw.Error, OSError) as error:
            raise self._unavailable(error) from error
        return result

    def _forget_if_changed(self, run: Run) -> None:
        # Behind the lock: from here on nobody else writes until this transaction ends.
        (version,) = run("PRAGMA data_version").fetchone()
        if version != self._version or len(self._known) > MAX_KNOWN:
            self._known.clear()
            self._version = version

    def _connect(self) -> apsw.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.path.touch(mode=0o600)
            connection = apsw.Connection(str(self.path))
            connection.set_busy_timeout(BUSY_MS)
            # For a new file only: a commit writes whole pages, and a call changes one.
            connection.execute("PRAGMA page_size=1024")
            use_wal(connection, BUSY_MS / 1000)
            # A commit is in the kernel's hands, and with that safe from the end of this process. The disk gets it when
            # `maintain` copies the log, and the file is whole whatever happens in between.
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint=0")
            connection.execute((sql_dir() / "limits.sql").read_text())
        except (apsw.Error, OSError) as error:
            raise self._unavailable(error) from error
        return connection

    def _unavailable(self, error: Exception) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"what is used of limits cannot be known ({self.path}: {error}){room_hint(self.path)}"
        )


class _Window(NamedTuple):
    """The uses of a budget in its window: the time of the newest and of the oldest, and the sums around them."""

    newest: float  # of all uses, in the window or not
    total: int  # up to the newest
    oldest: float  # 0 where none is in the window
    base: int  # what was used before the oldest
    seconds: float


_EMPTY: Final = _Window(0.0, 0, 0.0, 0, 0.0)


def _read_window(run: Run, charge: Charge, since: float) -> _Window:
    newest = run(SQL["newest_use"], (charge.budget,)).fetchone()
    if newest is None:
        return _Window(0.0, 0, 0.0, 0, charge.seconds)
    at, total = newest[0], int(newest[1])
    oldest = run(SQL["oldest_use"], (charge.budget, since)).fetchone() if at > since else None
    if oldest is None:
        return _Window(at, total, 0.0, total, charge.seconds)
    return _Window(at, total, oldest[0], int(oldest[2]) - int(oldest[1]), charge.seconds)


def _add_use(run: Run, charge: Charge, now: float, window: _Window, call_id: str) -> _Window:
    """Write a call down; return the window with it."""
    at, total = max(now, window.newest + TICK), window.total + charge.amount
    run(SQL["add_use"], (charge.budget, at, _fit(charge.amount), _fit(total), charge.seconds, call_id))
    return _Window(at, total, window.oldest or at, window.base, charge.seconds)


def _exceeded(run: Run, charge: Charge, now: float, window: _Window) -> Exceeded | None:
    """Return what a call finds in the way; None where there is room for it."""
    if not charge.seconds:
        used, _ = run(SQL["count_places"], (charge.budget, now)).fetchone()
        return Exceeded(charge, used, 1.0) if used + charge.amount > charge.most else None
    used = window.total - window.base
    if used + charge.amount <= charge.most:
        return None
    fits = charge.amount <= charge.most
    return Exceeded(charge, used, _room_in(run, charge, now - charge.seconds, window.total) if fits else None)


def _room_in(run: Run, charge: Charge, since: float, total: int) -> float | None:
    """Return in how many seconds enough calls have left the window."""
    for at, _, upto in run(SQL["uses_since"], (charge.budget, since)):
        if total - int(upto) + charge.amount <= charge.most:
            return float(at - since)
    return None


def _give_back(run: Run, budget: str, call_id: str) -> None:
    later: list[tuple[float, int]] = []
    for at, amount, total, owner in run(SQL["uses_of_budget"], (budget,)).fetchall():
        if owner == call_id:
            run(SQL["delete_use"], (budget, at))
            for other, upto in later:
                run(SQL["set_total"], (_fit(upto - int(amount)), budget, other))
            return
        later.append((at, int(total)))


def _usage(run: Run, budget: str, seconds: float, now: float) -> Usage:
    if not seconds:
        used, newest = run(SQL["count_places"], (budget, now)).fetchone()
        return Usage(budget, used, used, newest or 0.0)
    rows = run(SQL["uses_since"], (budget, now - seconds)).fetchall()
    return Usage(budget, sum(int(row[1]) for row in rows), len(rows), rows[-1][0] if rows else 0.0)


def _fit(number: int) -> int | str:
    """Return a number as the database takes it: past 64 bits as text."""
    return number if number < _BIG else str(number)
