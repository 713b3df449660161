"""Changes of what replicas share, such as agents and credentials: in the store first, then in the file here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.errors import ConfigError, StoreForbiddenError, StoreUnavailableError
from proxy.fleet.mirror import OPTIONAL_LISTS
from proxy.fleet.shared_state import LIST
from proxy.identity.token_file import encode_entries

if TYPE_CHECKING:
    from proxy.fleet.bridge import StoreBridge
    from proxy.fleet.shared_state import SharedState
    from proxy.identity.token_file import Edit
    from proxy.store.fleet_store import DocumentRow, FleetStore

TRIES: Final = 20


class SharedLists:
    """The `token_file.SharedLists` of a fleet."""

    def __init__(self, state: SharedState, bridge: StoreBridge) -> None:
        self._state = state
        self._bridge = bridge

    def change(self, name: str, edit: Edit) -> None:
        """Change a list in the store. Raises ConfigError where it cannot be changed, or is not to be trusted."""
        try:
            row = self._bridge.run(lambda store: self._replace(store, name, edit))
        except StoreForbiddenError as error:
            raise ConfigError(
                f"this database login may not change the fleet's {name}: {error}; give --database-url a login of the "
                "database's owner, or one in the role interlock_admin"
            ) from error
        except StoreUnavailableError as error:
            raise ConfigError(f"the fleet's {name} cannot be changed now: {error}") from error
        self._state.take_document(row)

    async def _replace(self, store: FleetStore, name: str, edit: Edit) -> DocumentRow:
        for _ in range(TRIES):
            row = await store.document(LIST + name)
            generation = row.generation if row is not None else 0
            if generation < self._state.known(LIST + name) or (row is None and name not in OPTIONAL_LISTS):
                raise ConfigError(f"the database has older {name} than this replica: restore what was lost first")
            entries = self._state.open_list(row) if row is not None else {}
            edit(entries)
            made = self._state.seal_list(name, generation + 1, encode_entries(entries))
            written = await (store.replace(made) if row is not None else store.add(made))
            if written or await self._is_ours(store, made):
                return made
        raise ConfigError(f"the fleet's {name} are changed by others all the time; try again")

    async def _is_ours(self, store: FleetStore, made: DocumentRow) -> bool:
        # A connection that broke may have committed it: then the second try found the next generation, our own.
        there = await store.document(made.name)
        return there is not None and there.seal == made.seal
