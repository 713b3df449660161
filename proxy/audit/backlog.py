"""What waits in the local logs to be moved to the store, and what keeps it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from proxy.audit.local_log_files import log_states
from proxy.errors import AuditUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from proxy.audit.local_log_sql import LogState


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits: how many events, for how long the oldest has, how many were set aside, what is wrong."""

    events: int
    lag_seconds: float | None
    rejected: int
    problems: tuple[str, ...]

    def data(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)


def read_backlog(state_dir: Path, now: float) -> Backlog:
    """Look into the logs of a state folder; a log that cannot be read is a problem to tell, not an error."""
    try:
        return sum_up(log_states(state_dir), now)
    except AuditUnavailableError as error:
        return Backlog(0, None, 0, (str(error),))


def sum_up(states: Mapping[Path, LogState], now: float, problems: Sequence[str] = ()) -> Backlog:
    """Say how several logs stand together, beside problems that are known."""
    lags = [now - _time(state.oldest) for state in states.values() if state.oldest is not None]
    return Backlog(
        events=sum(state.backlog for state in states.values()),
        lag_seconds=max(0.0, *lags) if lags else None,
        rejected=sum(state.rejected for state in states.values()),
        problems=(*problems, *(f"{path.name}: {state.problem}" for path, state in states.items() if state.problem)),
    )


def _time(body: str) -> float:
    try:
        return float(json.loads(body)["time"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return 0.0
