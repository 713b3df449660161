"""Counts the names of one site that an agent asks for: data can leave a few letters at a time, in ever new names."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from proxy.policy.host_data import site_of
from proxy.policy.ip_address import parse_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.core.model import EgressRequest

WINDOW_SECONDS: Final = 60.0
MOST_NAMES: Final = 40
"""Names of one site within the window. Honest pages use a dozen: www, api, cdn, a few shards."""
MAX_SITES: Final = 4096


class NameCounter:
    """Remembers, for each agent and site, when which name was last asked for. One per worker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sites: OrderedDict[tuple[str, str], dict[str, float]] = OrderedDict()

    def is_one_too_many(self, request: EgressRequest) -> bool:
        """Note a request; return whether its name is new and the site has had too many within the window."""
        name = request.host.rstrip(".").lower()
        if parse_address(name) is not None:
            return False
        now, key = self._clock(), (request.agent, site_of(name))
        names = self._sites.setdefault(key, {})
        self._sites.move_to_end(key)
        if len(self._sites) > MAX_SITES:
            self._sites.popitem(last=False)
        if name not in names and len(names) >= MOST_NAMES:
            recent = {each: seen for each, seen in names.items() if seen > now - WINDOW_SECONDS}
            names.clear()
            names.update(recent)
            if len(names) >= MOST_NAMES:
                return True
        names[name] = now
        return False
