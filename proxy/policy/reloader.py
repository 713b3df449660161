"""The policy in force: loaded at start, replaced when its files change, unless the new one is bad."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

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


def describe_refusal(problem: str) -> str:
    """Return one line on a policy that was not taken: where its first error is, what it is, and what holds now."""
    first, *more = problem.splitlines() or ["it cannot be used"]
    others = f" (and {len(more)} more: interlock policy check)" if more else ""
    return f"{first}{others}; the old policy stays in force"


class PolicyOrigin(Protocol):
    """Where the policy comes from."""

    shown: str  # for people
    poll_seconds: float  # between two looks at whether it changed

    def stamp(self) -> object:
        """Return what changes whenever the policy may have."""

    def load(self) -> CompiledPolicy:
        """Return the policy. Raises PolicyError."""

    def taken(self, policy: CompiledPolicy, stamp: Any) -> object:
        """Say that `policy` is in force now, `stamp` having been taken before it was loaded; return its stamp."""


class PolicyFiles:
    """A policy file or a folder of them, with the files that they include, and `also` files beside them."""

    poll_seconds = POLL_SECONDS

    def __init__(
        self,
        path: Path,
        *,
        book: KnownDetectors | None = None,
        home: str | None = None,
        parsed: ParsedFiles | None = None,
        also: Sequence[Path] = (),
    ) -> None:
        self.shown = str(path)
        self._path = path
        self._also = tuple(also)
        self._book = book
        self._home = home
        self._parsed = parsed
        self._included: Sequence[Path] = ()

    def stamp(self) -> tuple[Stamp, Stamp]:
        try:
            own = _stamp((*policy_files(self._path), *self._also))
        except PolicyError:
            own = ()
        return own, _stamp(self._included)

    def load(self) -> CompiledPolicy:
        return load_policy(self._path, self._book, parsed=self._parsed, home=self._home, also=self._also)

    def taken(self, policy: CompiledPolicy, stamp: Any) -> object:
        # Which files are included is known once they are loaded, so these are stamped after it, and the others before.
        self._included = policy.files
        return stamp[0], _stamp(self._included)


class LivePolicy:
    """Holds the policy in force. Raises PolicyError where the first one is bad.

    `origin` is a path, or whatever else a policy comes from. `prepare` builds whatever must change together with the
    policy and returns the function that puts it in force; where it raises, the policy is bad. It runs in a thread while
    the proxy serves. `parsed` keeps what the files were parsed to, for later starts. `also` are files beside those of
    the path. `on_change` is called after each reload, whether it succeeded or not.
    """

    def __init__(
        self,
        origin: Path | PolicyOrigin,
        on_change: Callable[[], None] = lambda: None,
        *,
        prepare: Callable[[CompiledPolicy], Callable[[], None]] = lambda _: lambda: None,
        book: KnownDetectors | None = None,
        home: str | None = None,
        parsed: ParsedFiles | None = None,
        also: Sequence[Path] = (),
    ) -> None:
        if isinstance(origin, PurePath):
            origin = PolicyFiles(origin, book=book, home=home, parsed=parsed, also=also)
        self._origin: PolicyOrigin = origin
        self.on_change = on_change
        self._prepare = prepare
        self.quiet = False  # where another process says what became of a reload
        self._requested = asyncio.Event()
        # Stamped before the files are read: a change in between is seen as one.
        self._stamp = self._origin.stamp()
        self._policy, adopt = self._load()
        # A C function that reads the attribute: every call asks for the policy in force several times.
        self.current: Callable[[], CompiledPolicy] = partial(getattr, self, "_policy")
        adopt()
        self._stamp = self._origin.taken(self._policy, self._stamp)
        self.problem: str | None = None

    def request_reload(self) -> None:
        """Make `watch` load the policy again, whether it changed or not."""
        self._requested.set()

    async def reload(self) -> bool:
        """Load the policy again, in a thread, and return whether it is in force; a bad policy changes nothing."""
        self._stamp = self._origin.stamp()
        before = self._policy.version
        try:
            self._take(await asyncio.to_thread(self._load))
        except PolicyError as error:
            self.problem = str(error)
            self._say("error", describe_refusal(self.problem))
        except Exception as error:  # whatever is wrong with the new policy, the old one stays in force
            self.problem = str(error) or type(error).__name__
            log.exception(describe_refusal(self.problem))
        else:
            if self._policy.version != before:
                self._say("info", "policy in force", path=self._origin.shown, version=self._policy.version)
        self.on_change()
        return self.problem is None

    def _say(self, level: str, event: str, **said: str) -> None:
        getattr(log, "debug" if self.quiet else level)(event, **said)

    def reload_if_changed(self) -> None:
        """Load the policy again if it changed: what `watch` does, for a process without an event loop."""
        stamp = self._origin.stamp()
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
        self._stamp = self._origin.taken(policy, self._stamp)

    def _load(self) -> Ready:
        policy = self._origin.load()
        return policy, self._prepare(policy)

    async def watch(self) -> None:
        """Reload whenever the policy changes or a reload is requested. Runs until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._requested.wait(), self._origin.poll_seconds)
            if self._requested.is_set() or self._origin.stamp() != self._stamp:
                self._requested.clear()
                await self.reload()


def _stamp(files: Sequence[Path]) -> Stamp:
    try:
        return tuple((str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in files)
    except OSError:
        return ()
