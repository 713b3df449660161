"""The policy in force: loaded at start, replaced when its files change, unless the new one is bad."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from proxy.errors import PolicyError
from proxy.policy.load import load_policy, policy_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from proxy.core.interfaces import KnownDetectors
    from proxy.policy.decide import CompiledPolicy
    from proxy.policy.load import ParsedFiles

    type Stamp = tuple[tuple[str, int, int], ...]
    type Ready = tuple[CompiledPolicy, Callable[[], None]]

log = structlog.get_logger("interlock.policy")

POLL_SECONDS = 1.0


_STAYS: Final = "the new policy is bad; the old one stays in force"


def _one_line(text: str) -> str:
    """Return the first line of a message, and how many follow."""
    first, *more = text.splitlines() or [""]
    return f"{first} (and {len(more)} more lines; see: interlock policy check)" if more else first


class LivePolicy:
    """Holds the policy in force. Raises PolicyError where the first one is bad.

    `prepare` builds whatever must change together with the policy and returns the function that
    puts it in force; where it raises, the policy is bad. It runs in a thread while the proxy
    serves. `parsed` keeps what the files were parsed to, for later starts. `also` are files beside
    those of `path`. `on_change` is called
    after each reload, whether it succeeded or not.
    """

    def __init__(
        self,
        path: Path,
        on_change: Callable[[], None] = lambda: None,
        *,
        prepare: Callable[[CompiledPolicy], Callable[[], None]] = lambda _: lambda: None,
        book: KnownDetectors | None = None,
        home: str | None = None,
        parsed: ParsedFiles | None = None,
        also: Sequence[Path] = (),
    ) -> None:
        self._path = path
        self._also = tuple(also)
        self.on_change = on_change
        self._prepare = prepare
        self._book = book
        self._home = home
        self._parsed = parsed
        self._requested = asyncio.Event()
        self._stamp = self._fingerprint()
        self._policy, adopt = self._load()
        # A C function that reads the attribute: every call asks for the policy in force several times.
        self.current: Callable[[], CompiledPolicy] = partial(getattr, self, "_policy")
        adopt()
        self._stamp = (self._stamp[0], self._included_stamp())
        self.problem: str | None = None

    def request_reload(self) -> None:
        """Make `watch` load the files again, whether they changed or not."""
        self._requested.set()

    async def reload(self) -> bool:
        """Load the files again, in a thread, and return whether they are in force; a bad policy changes nothing."""
        self._stamp = self._fingerprint()
        before = self._policy.version
        try:
            self._take(await asyncio.to_thread(self._load))
        except PolicyError as error:
            self.problem = str(error)
            log.error(_STAYS, path=str(self._path), error=_one_line(self.problem))  # noqa: TRY400  a traceback tells nothing here
        except Exception as error:  # whatever is wrong with the new policy, the old one stays in force
            self.problem = str(error) or type(error).__name__
            log.exception(_STAYS, path=str(self._path), error=self.problem)
        else:
            if self._policy.version != before:
                log.info("policy in force", path=str(self._path), version=self._policy.version)
        self.on_change()
        return self.problem is None

    def reload_if_changed(self) -> None:
        """Load the files again if they changed: what `watch` does, for a process without an event loop."""
        stamp = self._fingerprint()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._take(self._load())
        except Exception as error:  # noqa: BLE001  the workers log it
            self.problem = str(error) or type(error).__name__

    def _take(self, ready: Ready) -> None:
        policy, adopt = ready
        adopt()
        self._policy, self.problem = policy, None
        self._stamp = (self._stamp[0], self._included_stamp())

    def _load(self) -> Ready:
        policy = load_policy(self._path, self._book, parsed=self._parsed, home=self._home, also=self._also)
        return policy, self._prepare(policy)

    async def watch(self) -> None:
        """Reload whenever the files change or a reload is requested. Runs until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._requested.wait(), POLL_SECONDS)
            if self._requested.is_set() or self._fingerprint() != self._stamp:
                self._requested.clear()
                await self.reload()

    def _fingerprint(self) -> tuple[Stamp, Stamp]:
        try:
            own = _stamp((*policy_files(self._path), *self._also))
        except PolicyError:
            own = ()
        return own, self._included_stamp()

    def _included_stamp(self) -> Stamp:
        # Which files are included is known once they are loaded, so these are stamped after it, and the others before.
        policy: CompiledPolicy | None = getattr(self, "_policy", None)
        return _stamp(policy.files if policy is not None else ())


def _stamp(files: Sequence[Path]) -> Stamp:
    try:
        return tuple((str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files)
    except OSError:
        return ()
