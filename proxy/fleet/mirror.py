"""The files of a state folder that mirror what is shared: read like one's own, whether the database is there or not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from proxy.fleet.sealing import key_id
from proxy.identity.ca import Authority
from proxy.identity.token_file import AgentTokens, OperatorTokens, encode_entries
from proxy.rollout.keys import default_trusted, key_entry, trusted_keys
from proxy.system.secret_files import read_or_make_key, write_private
from proxy.twophase.keys import KeyFile

if TYPE_CHECKING:
    from pathlib import Path

    from proxy.config import Settings

KEY_BYTES: Final = 32
STATE: Final = "state"
COMMIT: Final = "commit"
CA: Final = "ca"
# Random keys: of lists and pins, of masks, of digests in events, of sealed texts, of fingerprints of flows.
RANDOM: Final = (STATE, "mask", "digest", "seal", "flows")
SECRETS: Final = (*RANDOM, COMMIT, CA)
POLICY_KEYS: Final = "policy_keys"
VAULT: Final = "vault"
LISTS: Final = ("agents", "operators", POLICY_KEYS)
# Not there before somebody adds to them.
OPTIONAL_LISTS: Final = (VAULT,)
# What a running proxy reads again when it changes. The others are read at the start.
LIVE: Final = (COMMIT,)


class Mirror:
    """The files of one state folder."""

    def __init__(self, settings: Settings) -> None:
        self.state_dir = settings.state_dir
        keys = settings.state_dir / "keys"
        self._files = {name: keys / f"{name}.key" for name in RANDOM} | {
            COMMIT: settings.commit_keys_file,
            CA: Authority(settings.state_dir).key_file,
        }
        self._trusted = settings.policy_keys or default_trusted(settings.state_dir)
        self._lists = {name: settings.state_dir / f"{name}.json" for name in (*LISTS, *OPTIONAL_LISTS)}

    def make_missing(self) -> None:
        """Make what the first start of a proxy would make."""
        for name in RANDOM:
            read_or_make_key(self._files[name], KEY_BYTES)
        KeyFile(self._files[COMMIT]).ring(time.time())
        Authority(self.state_dir).ensure()
        OperatorTokens(self.state_dir).ensure()
        agents = AgentTokens(self.state_dir)
        if not agents.path.exists():
            write_private(agents.path, b"{}")
        trusted = trusted_keys(self._trusted)
        entries = {name: key_entry(key, time.time()) for name, key in trusted.items()}
        write_private(self._lists[POLICY_KEYS], encode_entries(entries))

    def secret(self, name: str) -> bytes | None:
        return _read(self._files[name])

    def list(self, name: str) -> bytes | None:
        return _read(self._lists[name])

    def put_secret(self, name: str, data: bytes) -> None:
        if self.secret(name) != data:
            write_private(self._files[name], data)

    def put_list(self, name: str, data: bytes) -> None:
        if self.list(name) != data:
            write_private(self._lists[name], data)

    def key_ids(self) -> dict[str, str]:
        """Name the keys that are here."""
        found = {name: self.secret(name) for name in SECRETS}
        return {name: key_id(name, data) for name, data in found.items() if data is not None}

    def file(self, name: str) -> Path:
        return self._files.get(name) or self._lists[name]


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
