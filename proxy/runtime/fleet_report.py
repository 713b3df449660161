"""What a replica says of itself to its fleet."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING

from proxy.audit.backlog import read_backlog
from proxy.core.secret_variables import COMMIT_SECRET
from proxy.fleet.mirror import COMMIT
from proxy.fleet.watcher import keys_digest
from proxy.store.fleet_store import Replica
from proxy.store.migrate import migrations
from proxy.system.package_data import version
from proxy.twophase.keys import open_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.config import Settings
    from proxy.fleet.open_state import Fleet


class FleetReport:
    """Makes the row of one replica; `policy` and `problem` say how it is now."""

    def __init__(
        self, settings: Settings, fleet: Fleet, policy: Callable[[], str], problem: Callable[[], str | None]
    ) -> None:
        self._settings = settings
        self._fleet = fleet
        self._policy = policy
        self._problem = problem
        self._started = time.time()
        self._schema = migrations("postgres")[-1].version

    def replica(self) -> Replica:
        """Return it. Raises ConfigError where the keys cannot be read."""
        backlog = read_backlog(self._settings.state_dir, time.time())
        return Replica(
            replica_id=self._fleet.replica_id,
            host=socket.gethostname(),
            version=version(),
            schema_version=self._schema,
            policy=self._policy(),
            keys=keys_digest(self._key_ids()),
            workers=self._settings.workers,
            lag_seconds=max(backlog.lag_seconds or 0.0, *(one.lag_seconds or 0.0 for one in backlog.sinks), 0.0),
            waiting_events=max(backlog.events, *(one.events for one in backlog.sinks), 0),
            problem=self._problem(),
            started_at=self._started,
        )

    def _key_ids(self) -> dict[str, str]:
        found = self._fleet.state.mirror.key_ids()
        if os.environ.get(COMMIT_SECRET):
            # Keys from a variable are used in place of the shared ones: then they must be the same everywhere.
            found[COMMIT] = open_keys(self._settings.commit_keys_file, os.environ).ring(time.time()).current.key_id
        return found
