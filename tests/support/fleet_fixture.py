"""State folders of replicas on one Postgres, and what a test needs of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.config import Settings
from proxy.core.secret_variables import KEK_ENV
from proxy.fleet.join import Joined, init_fleet, join_fleet
from proxy.fleet.open_state import Fleet, find_fleet_with_key
from proxy.gate.tool_pins import Page, ServerPins, print_tool, take_page

KEK = "00112233445566778899aabbccddeeff" * 2
OTHER_KEK = "ffeeddccbbaa99887766554433221100" * 2
ENVIRON = {KEK_ENV: KEK}


@dataclass
class FleetWorld:
    """Replicas by name. `url` is the owner's; `as_writer` that of a proxy."""

    folder: Path
    url: str
    made: list[Fleet] = field(default_factory=list[Fleet])

    def settings(self, name: str, url: str | None = None, **more: Any) -> Settings:
        return Settings(
            state_dir=self.folder / name, database_url=url or self.url, key_encryption_key=f"env:{KEK_ENV}", **more
        )

    def init(self, name: str = "a") -> Joined:
        return init_fleet(self.settings(name), ENVIRON)

    def join(self, name: str, kek: str = KEK) -> Joined:
        return join_fleet(self.settings(name), {KEK_ENV: kek})

    def open(self, name: str, url: str | None = None) -> Fleet:
        fleet = find_fleet_with_key(self.settings(name, url), ENVIRON)
        assert fleet is not None
        self.made.append(fleet)
        return fleet

    def close(self) -> None:
        for fleet in self.made:
            fleet.bridge.close()


def listed(known: ServerPins | None, *tools: tuple[str, str], adopt: bool = False) -> ServerPins:
    """Return a server's pins after a whole list of tools: their names and descriptions."""
    page = Page([(name, print_tool({"name": name, "description": text})) for name, text in tools])
    return take_page(known, page, adopt=adopt, now=1_763_000_000.0)[0]
