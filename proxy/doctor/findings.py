"""Results of checks, and a runner that gives each check a time limit."""

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
    """The result of one check: its state, a sentence, and how to fix it if it is not ok."""

    check: str
    state: State
    said: str
    mend: str = ""

    def data(self) -> dict[str, Any]:
        return asdict(self)


type Check = Callable[[], Iterable[CheckResult]]


def ok(check: str, said: str) -> CheckResult:
    return CheckResult(check, "ok", said)


def warn(check: str, said: str, mend: str) -> CheckResult:
    return CheckResult(check, "warn", said, mend)


def fail(check: str, said: str, mend: str) -> CheckResult:
    return CheckResult(check, "fail", said, mend)


def run_checks(checks: Sequence[tuple[str, Check]], limit: float = LIMIT) -> Iterator[CheckResult]:
    """Run all checks at once and yield their results in order.

    A check that raises, or takes longer than `limit` seconds, yields a failure.
    """
    # Threads that cannot be stopped, and so daemons: a hanging NFS mount or name server must not hang the doctor.
    started = [(name, _Attempt(name, check)) for name, check in checks]
    end = time.monotonic() + limit
    for name, attempt in started:
        attempt.join(max(0.0, end - time.monotonic()))
        if attempt.is_alive():
            yield fail(name, f"no answer within {limit:.0f} s", "check whether a disk, a name server or a host hangs")
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
        except Exception as error:  # noqa: BLE001  one broken check must not stop the others
            self.found = [fail(self._name, f"the check failed: {type(error).__name__}: {error}", "report this bug")]
