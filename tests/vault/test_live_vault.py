"""What is in force follows the file and the sources; whatever fails makes a credential unavailable."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from proxy.core.vault import CredentialUnavailableError, Vault
from proxy.vault.live_vault import KEPT_VALUES, LiveVault
from proxy.vault.placeholder import make
from proxy.vault.vault_file import Bindings, CommandSource, Entry, EnvSource, FileSource, Source, VaultFile
from tests.support.timeouts import PATIENCE


def add(folder: Path, source: Source, name: str = "a", ttl: float = 60) -> Entry:
    made = Entry(placeholder=make(name), source=source, bindings=Bindings(hosts=("a.example",)), ttl=ttl, added=1.0)
    VaultFile(folder).add(name, made)
    return made


async def value(vault: Vault, name: str = "a") -> str:
    return (await vault.value(name)).reveal().decode()


async def refusal(vault: Vault, name: str = "a") -> str:
    with pytest.raises(CredentialUnavailableError) as told:
        await vault.value(name)
    assert told.value.name == name
    return told.value.why


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("one\n")
    return tmp_path / "secret"


async def test_changes_by_others_are_in_force_at_once(tmp_path: Path, secret: Path) -> None:
    vault = LiveVault(tmp_path)
    assert vault.credentials() == ()
    made = add(tmp_path, FileSource(path=str(secret)))
    assert [each.placeholder for each in vault.credentials()] == [made.placeholder]
    assert vault.credentials() is vault.credentials()
    assert await value(vault) == "one"
    VaultFile(tmp_path).revoke("a")
    assert vault.credentials() == ()
    assert vault.revoked_placeholders() == {made.placeholder}
    assert "no credential of this name" in await refusal(vault)


async def test_a_rotated_file_counts_and_the_old_value_stays_known(tmp_path: Path, secret: Path) -> None:
    add(tmp_path, FileSource(path=str(secret)))
    vault = LiveVault(tmp_path)
    values = [str(number) for number in range(KEPT_VALUES + 2)]
    for each in values:
        secret.write_text(each)
        assert await value(vault) == each
    assert [held.reveal().decode() for _, held in vault.known_values()] == values[2:]
    secret.unlink()
    assert "cannot be read" in await refusal(vault)


async def test_the_links_of_a_kubernetes_mount_are_followed_anew(tmp_path: Path) -> None:
    for stamp in ("one", "two"):
        (tmp_path / f"..{stamp}").mkdir()
        (tmp_path / f"..{stamp}" / "token").write_text(stamp)
        os.utime(tmp_path / f"..{stamp}" / "token", (1, 1))
    (tmp_path / "..data").symlink_to("..one")
    (tmp_path / "token").symlink_to("..data/token")
    add(tmp_path, FileSource(path=str(tmp_path / "token")))
    vault = LiveVault(tmp_path)
    assert await value(vault) == "one"
    (tmp_path / "..tmp").symlink_to("..two")
    (tmp_path / "..tmp").rename(tmp_path / "..data")
    assert await value(vault) == "two"


def counting(tmp_path: Path) -> CommandSource:
    code = f"import os; file = open({str(tmp_path / 'runs')!r}, 'a'); file.write('x'); file.flush(); print(file.tell())"
    return CommandSource(argv=(sys.executable, "-c", code))


async def test_an_entry_that_an_agent_of_hashicorp_vault_replaces_is_read_anew(tmp_path: Path) -> None:
    rendered = tmp_path / "github.json"
    rendered.write_text(json.dumps({"token": "first-lease", "user": "bot"}))
    add(tmp_path, FileSource(path=str(rendered), key="token"))
    vault = LiveVault(tmp_path)
    assert await value(vault) == "first-lease"
    (tmp_path / "github.json.new").write_text(json.dumps({"token": "second-lease", "user": "bot"}))
    (tmp_path / "github.json.new").rename(rendered)
    assert await value(vault) == "second-lease"
    assert {secret.reveal() for _, secret in vault.known_values()} == {b"first-lease", b"second-lease"}


async def test_a_command_runs_once_for_all_who_wait_and_again_after_its_time(tmp_path: Path) -> None:
    now = [0.0]
    add(tmp_path, counting(tmp_path), ttl=30)
    vault = LiveVault(tmp_path, clock=lambda: now[0], seconds=PATIENCE)
    assert await asyncio.gather(*(value(vault) for _ in range(8))) == ["1"] * 8
    now[0] = 29
    assert await value(vault) == "1"
    now[0] = 31
    assert await value(vault) == "2"


async def test_a_failure_is_forgotten_after_a_second(tmp_path: Path) -> None:
    now = [0.0]
    environ: dict[str, str] = {}
    add(tmp_path, EnvSource(variable="A"))
    vault = LiveVault(tmp_path, clock=lambda: now[0], environ=environ)
    assert "A is not set" in await refusal(vault)
    environ["A"] = "one"
    assert "A is not set" in await refusal(vault)
    now[0] = 1.5
    assert await value(vault) == "one"


@pytest.mark.parametrize("how", ["damaged", "open", "gone"])
async def test_a_file_that_breaks_makes_all_unavailable_and_known(tmp_path: Path, secret: Path, how: str) -> None:
    made = add(tmp_path, FileSource(path=str(secret)))
    vault, path = LiveVault(tmp_path), VaultFile(tmp_path).path
    assert await value(vault) == "one"
    kept = path.read_bytes()
    if how == "damaged":
        path.write_bytes(b"{")
    elif how == "open":
        path.chmod(0o644)
    else:
        path.unlink()
    assert [each.placeholder for each in vault.credentials()] == [made.placeholder]
    assert "vault.json" in await refusal(vault)
    path.write_bytes(kept)
    path.chmod(0o600)
    assert await value(vault) == "one"


async def test_a_process_that_starts_with_a_damaged_file_knows_nothing_and_says_so(tmp_path: Path) -> None:
    VaultFile(tmp_path).path.write_bytes(b"{")
    VaultFile(tmp_path).path.chmod(0o600)
    vault = LiveVault(tmp_path)
    for ask in (vault.credentials, vault.revoked_placeholders):
        with pytest.raises(CredentialUnavailableError, match="is damaged"):
            ask()
    assert "is damaged" in await refusal(vault)
