"""What an examination finds, and the one who carries examinations out in bounded time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from proxy.errors import InterlockError

type State = Literal["ok", "warn", "fail"]

LIMIT = 30.0


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that was looked at: how it is, and where it is not well, how to mend it."""

    check: str
    state: State
    said: str
    mend: str = ""

    def data(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


type Check = Callable[[], Iterable[CheckResult]]


def ok(check: str, said: str) -> CheckResult:
    """Return that something is well."""
    return CheckResult(check, "ok", said)


def warn(check: str, said: str, mend: str) -> CheckResult:
    """Return that something works less well than it could."""
    return CheckResult(check, "warn", said, mend)


def fail(check: str, said: str, mend: str) -> CheckResult:
    """Return that something does not work."""
    return CheckResult(check, "fail", said, mend)


def run_checks(checks: Sequence[tuple[str, Check]], limit: float = LIMIT) -> Iterator[CheckResult]:
    """Carry examinations out, all at once, and give what they find, in their order.

    One that fails or takes longer than `limit` seconds is a finding itself. Its thread is left
    behind: nothing waits for it.
    """
    started = [(name, _Attempt(name, check)) for name, check in checks]
    end = time.monotonic() + limit
    for name, attempt in started:
        attempt.join(max(0.0, end - time.monotonic()))
        if attempt.is_alive():
            yield fail(name, f"no answer within {limit:.0f} s", "see whether a disk, a name server or a host hangs")
        else:
            yield from attempt.found


class _Attempt(threading.Thread):
    def __init__(self, name: str, check: Check) -> None:
        super().__init__(name=f"doctor-{name}", daemon=True)
        self._name = name
        self._examination = check
        self.found: list[CheckResult] = []
        self.start()

    def run(self) -> None:
        try:
            self.found = list(self._examination())
        except InterlockError as error:
            self.found = [fail(self._name, str(error), "see the message")]
        except Exception as error:  # noqa: BLE001  the boundary: what cannot be looked at is told, and the rest goes on
            self.found = [fail(self._name, f"it cannot be examined: {type(error).__name__}: {error}", "report this")]
