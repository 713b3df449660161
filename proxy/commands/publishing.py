"""What the commands of the policy roll-out share: who publishes, with which key, on which store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from proxy.audit.signing_keys import PublicKey
from proxy.commands.options import ConfigFile, DatabaseUrl, StateDir, store_settings
from proxy.commands.proposals import TokenFile
from proxy.commands.review import find_token
from proxy.commands.terminal import count, print_note, printable
from proxy.config import Settings
from proxy.core.approvals import Role
from proxy.core.rollout import ReplicaState
from proxy.errors import ConfigError
from proxy.fleet.open_state import open_tokens
from proxy.fleet.policy_keys import read_trusted, trusted_path
from proxy.identity.token_file import OperatorTokens
from proxy.rollout.keys import default_key_file, read_key
from proxy.rollout.publisher import SEEN_SECONDS, Publisher
from proxy.rollout.step import Step
from proxy.store.open_store import open_database
from proxy.store.rollout_store import Rollout

ASK_SECONDS: Final = 0.1

KeyFile = Annotated[
    Path | None, typer.Option("--key", help="Private key that signs; default: keys/policy-signing.pem.")
]
Note = Annotated[str, typer.Option(help="Why; it is signed, and shown in the history.")]
Wait = Annotated[float, typer.Option(min=0, max=600, help="Seconds to wait until the replicas follow.")]


@dataclass(frozen=True)
class StoreOptions:
    """Where the steps are, for commands that only read."""

    state_dir: StateDir = None
    database_url: DatabaseUrl = None
    config: ConfigFile = None

    def settings(self) -> Settings:
        return store_settings(self.database_url, self.state_dir, self.config)

    def ask[T](self, question: Callable[[Publisher, Rollout], Awaitable[T]]) -> T:
        settings = self.settings()

        async def ask() -> T:
            async with opened(settings, read_trusted(settings)) as (publisher, store):
                return await question(publisher, store)

        return asyncio.run(ask())


@dataclass(frozen=True)
class PublisherOptions:
    """Who publishes a step."""

    key: KeyFile = None
    token_file: TokenFile = None
    state_dir: StateDir = None
    database_url: DatabaseUrl = None
    config: ConfigFile = None

    def settings(self) -> Settings:
        return store_settings(self.database_url, self.state_dir, self.config)

    def publisher(self, settings: Settings) -> Author:
        """Return the operator and the key. Raises ConfigError: no admin, no key, or one that is not trusted."""
        operators = open_tokens(OperatorTokens, settings)
        operator = operators.operator(find_token(settings.state_dir, self.token_file))
        if operator is None:
            raise ConfigError("this is not an operator's token of this state folder; see `interlock operators list`")
        if not operator.role.includes(Role.ADMIN):
            raise ConfigError(
                f"{operator.name} has the role {operator.role}, and to publish a policy needs admin; "
                f"see `interlock operators change {operator.name} --role admin`"
            )
        key_id, key = read_key(self.key or default_key_file(settings.state_dir))
        keys = read_trusted(settings)
        if key_id not in keys:
            raise ConfigError(
                f"the key {key_id} is not among the trusted ones in {trusted_path(settings)}: no replica with these "
                "settings would take what it signs; put its public key there with `interlock policy key`"
            )
        return Author(operator.name, (key_id, key), keys)


@dataclass(frozen=True)
class Author:
    operator: str
    key: tuple[str, Ed25519PrivateKey]
    keys: dict[str, PublicKey] | Any


@contextlib.asynccontextmanager
async def opened(settings: Settings, keys: Any) -> AsyncIterator[tuple[Publisher, Rollout]]:
    """Yield what reads and publishes steps on the store."""
    database = open_database(settings.postgres, settings.state_dir, connections=1)
    try:
        store = Rollout(database)
        yield Publisher(store, keys), store
    finally:
        await database.close()


async def followed(store: Rollout, step: Step, seconds: float) -> Sequence[ReplicaState]:
    """Return what the replicas say, once all of them follow the step or the time is up."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    first = {one.replica: one.seen_at for one in await store.replicas(SEEN_SECONDS)}
    while True:
        replicas = await store.replicas(SEEN_SECONDS)
        # What was said of an earlier step says nothing of this one.
        said = [one.replica for one in replicas if one.problem and one.seen_at != first.get(one.replica)]
        settled = all(one.number >= step.number or one.replica in said for one in replicas)
        if settled or loop.time() >= until:
            return replicas
        await asyncio.sleep(ASK_SECONDS)


def show_replicas(step: Step, replicas: Sequence[ReplicaState]) -> bool:
    """Say where a step is in force; return whether it is so everywhere."""
    there = [one for one in replicas if one.number >= step.number]
    if not replicas:
        print_note("No replica follows pushed policies here yet: set policy_source: pushed, and start it.")
        return True
    print_note(f"In force at {len(there)} of {count(len(replicas), 'replica')}.")
    for one in replicas:
        if one.number < step.number:
            said = f": {printable(one.problem)}" if one.problem else ", and has not said why"
            print_note(f"{printable(one.replica)} follows step {one.number}{said}")
    return len(there) == len(replicas)
