"""The file of credentials is strict, private, and never taken for an empty one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import ConfigError
from proxy.vault.placeholder import make
from proxy.vault.vault_file import Bindings, Document, Entry, FileSource, VaultFile, checked


def entry(name: str = "a", path: str = "/s") -> Entry:
    return Entry(placeholder=make(name), source=FileSource(path=path), added=1.0)


def test_what_is_added_is_read_back_from_a_private_file(tmp_path: Path) -> None:
    file, made = VaultFile(tmp_path / "state"), entry()
    file.add("a", made)
    assert file.read().credentials == {"a": made}
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_a_revoked_one_leaves_its_placeholder(tmp_path: Path) -> None:
    file, made = VaultFile(tmp_path), entry()
    file.add("a", made)
    file.revoke("a")
    file.add("a", entry())
    assert [stone.placeholder for stone in file.read().revoked] == [made.placeholder]


def test_changes_at_once_are_all_kept(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(16)]
    threads = [threading.Thread(target=VaultFile(tmp_path).add, args=(name, entry(name))) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(VaultFile(tmp_path).read().credentials) == set(names)


def damaged(tmp_path: Path) -> list[bytes]:
    VaultFile(tmp_path).add("a", entry())
    good = json.loads(VaultFile(tmp_path).path.read_bytes())
    held = good["credentials"]["a"]
    return [
        b"",
        b"{",
        b"[]",
        b"\xff",
        json.dumps({**good, "version": 2}).encode(),
        json.dumps({**good, "more": 1}).encode(),
        json.dumps({**good, "credentials": {"a": {**held, "host": []}}}).encode(),
        json.dumps({**good, "credentials": {"a": held, "b": held}}).encode(),
        json.dumps({**good, "credentials": {"a": {**held, "placeholder": ""}}}).encode(),
        json.dumps({**good, "credentials": {"a": {**held, "bindings": {"hosts": ["*"]}}}}).encode(),
        json.dumps({**good, "credentials": {"a": {**held, "bindings": {"places": ["cookie"]}}}}).encode(),
    ]


def test_a_damaged_file_is_an_error_and_is_not_overwritten(tmp_path: Path) -> None:
    file = VaultFile(tmp_path)
    for data in damaged(tmp_path):
        file.path.write_bytes(data)
        with pytest.raises(ConfigError, match="is damaged"):
            file.read()
        with pytest.raises(ConfigError, match="is damaged"):
            file.add("c", entry("c"))
        assert file.path.read_bytes() == data


def test_a_file_open_to_others_is_an_error(tmp_path: Path) -> None:
    file = VaultFile(tmp_path)
    file.add("a", entry())
    file.path.chmod(0o666)
    with pytest.raises(ConfigError, match="chmod 600"):
        file.read()


@pytest.mark.parametrize("host", ["", "*", "*.*", "*.com", "https://a.example", "a.example:443", "a b", "a/b"])
def test_a_host_too_wide_or_none_is_told(host: str) -> None:
    with pytest.raises(ConfigError, match=r"host .* is not allowed; write a name"):
        checked(Bindings, hosts=(host,))


@pytest.mark.parametrize("host", ["a.example", "*.a.example", "localhost", "10.0.0.1", "::1", "api-*.a.example"])
def test_hosts_as_in_egress_rules_are_taken(host: str) -> None:
    assert checked(Bindings, hosts=(host,)).hosts == (host,)


def test_unknown_and_taken_names_are_told(tmp_path: Path) -> None:
    file = VaultFile(tmp_path)
    file.add("a", entry())
    with pytest.raises(ConfigError, match="already exists; change it with `interlock vault bind`"):
        file.add("a", entry())
    with pytest.raises(ConfigError, match="there is no credential 'b'; known credentials: a"):
        file.revoke("b")


def test_a_variable_alone_is_for_agents_and_a_server_needs_one() -> None:
    assert checked(Bindings, variable="TOKEN").servers == ()
    with pytest.raises(ConfigError, match="give --variable with --server"):
        checked(Bindings, servers=("files",))
    with pytest.raises(ConfigError, match="is not given to others"):
        checked(Bindings, variable="INTERLOCK_AGENT_TOKEN")


class Shared:
    """What a fleet has, and who changes it first."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value

    def change(self, name: str, edit: Callable[[dict[str, Any]], None]) -> None:
        assert name == "vault"
        for value in (json.loads(json.dumps(self.value)), self.value):  # as where somebody else was faster
            edit(value)


def test_in_a_fleet_the_shared_document_is_changed_and_not_the_file(tmp_path: Path) -> None:
    shared, made = Shared({}), entry()
    file = VaultFile(tmp_path, shared)
    file.add("a", made)
    file.change("a", lambda known: known.model_copy(update={"ttl": 1.0}))
    assert Document.model_validate_json(json.dumps(shared.value)).credentials["a"].ttl == 1.0
    assert file.revoke("a").placeholder == made.placeholder
    assert [stone["name"] for stone in shared.value["revoked"]] == ["a"]
    assert not file.path.exists()
    shared.value["more"] = 1
    with pytest.raises((ConfigError, ValueError)):
        file.add("b", entry("b"))
