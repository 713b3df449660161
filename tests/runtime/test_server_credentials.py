"""A wrapped server finds placeholders in its environment, in a sandbox and without, traced and not."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.runtime.server_credentials import VAULT, has_vault
from proxy.vault.placeholder import make
from proxy.vault.vault_file import FILE, Bindings, Entry, FileSource, VaultFile
from tests.support.harness import Interlock, start_interlock
from tests.support.processes import REPOSITORY
from tests.support.stdio_harness import start_run
from tests.support.system_needs import needs, needs_namespaces

ASKING = [sys.executable, str(REPOSITORY / "tests" / "servers" / "asking.py")]
ALLOW = "version: 1\ndefault: allow\n"
REAL = "the-launcher-has-this-value"


def add(state_dir: Path, source: Path, name: str = "api", **bindings: Any) -> str:
    """Add a credential of the server `asking`; return its placeholder."""
    bound = Bindings(**{"hosts": ("api.example",), "servers": ("ask*",), "variable": "API_TOKEN", **bindings})
    entry = Entry(placeholder=make(name), source=FileSource(path=str(source)), bindings=bound, added=1.0)
    VaultFile(state_dir).add(name, entry)
    return entry.placeholder


def environment_of(answer: dict[str, Any]) -> dict[str, str]:
    text = answer["result"]["content"][0]["text"]
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir(mode=0o700)
    (folder / "api").write_text(REAL)
    return folder / "api"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    with start_interlock(tmp_path_factory.mktemp("proxy"), policy=ALLOW) as running:
        yield running


@pytest.mark.parametrize("trace", ["off", pytest.param("require", marks=needs("strace"))])
@pytest.mark.parametrize("sandbox", [(), pytest.param(("--sandbox",), marks=needs_namespaces)], ids=["bare", "boxed"])
def test_the_placeholder_stands_where_the_launcher_had_the_value(
    tmp_path: Path, secret: Path, trace: str, sandbox: tuple[str, ...]
) -> None:
    placeholder = add(tmp_path / "state", secret)
    flags = ("--trace", trace, "--server-name", "asking", *sandbox)
    with start_run(tmp_path, ASKING, *flags, policy=ALLOW, env={"API_TOKEN": REAL}) as run:
        found = environment_of(run.call("read", 1, path="/proc/self/environ"))
        assert run.end() == 0, run.errors()
    assert found["API_TOKEN"] == placeholder
    assert REAL not in json.dumps(found)
    assert ("no proxy runs" in run.errors()) == (not sandbox)


def test_a_server_of_another_name_keeps_its_own(tmp_path: Path, secret: Path) -> None:
    add(tmp_path / "state", secret, servers=("other",))
    add(tmp_path / "state", secret, name="agents", servers=())
    flags = ("--trace", "off", "--server-name", "asking")
    with start_run(tmp_path, ASKING, *flags, policy=ALLOW, env={"API_TOKEN": "own"}) as run:
        found = environment_of(run.call("read", 1, path="/proc/self/environ"))
    assert found["API_TOKEN"] == "own"
    assert "HTTPS_PROXY" not in found


def test_without_a_sandbox_its_requests_are_sent_through_the_proxy(
    proxy: Interlock, tmp_path: Path, secret: Path
) -> None:
    placeholder = add(proxy.state_dir, secret)
    flags, env = ("--trace", "off", "--server-name", "asking"), {"NO_PROXY": "*"}
    with start_run(tmp_path, ASKING, *flags, policy=ALLOW, state_dir=proxy.state_dir, env=env) as run:
        found = environment_of(run.call("read", 1, path="/proc/self/environ"))
        assert run.end() == 0, run.errors()
    assert found["API_TOKEN"] == placeholder
    assert found["HTTPS_PROXY"] == f"http://127.0.0.1:{proxy.port}"
    assert found["SSL_CERT_FILE"] == str(proxy.state_dir / "ca" / "bundle.pem")
    assert "NO_PROXY" not in found
    assert "no proxy runs" not in run.errors()


def test_the_name_of_the_file_is_the_vaults_and_one_that_cannot_be_looked_up_counts_as_there(tmp_path: Path) -> None:
    assert VAULT == FILE
    assert not has_vault(tmp_path)
    (tmp_path / FILE).symlink_to("nowhere")
    assert has_vault(tmp_path)
    (tmp_path / "file").touch()
    assert has_vault(tmp_path / "file")


@pytest.mark.parametrize("damage", [b"{", b'{"credentials": {"a": {}}}'])
def test_with_a_damaged_vault_nothing_is_run(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "vault.json").write_bytes(damage)
    (tmp_path / "state" / "vault.json").chmod(0o600)
    with start_run(tmp_path, ASKING, "--trace", "off", policy=ALLOW) as run:
        assert run.wait() == 1
        assert "vault.json is damaged" in run.errors()


@needs_namespaces
def test_in_a_sandbox_no_source_is_seen_also_after_it_was_rotated(tmp_path: Path, secret: Path) -> None:
    add(tmp_path / "state", secret)
    shown = tmp_path / "profile.yaml"
    shown.write_text(json.dumps({"extends": ["python"], "read": [str(tmp_path)]}))
    (tmp_path / "plain").write_text("seen")
    flags = ("--trace", "off", "--server-name", "asking", f"--sandbox={shown}")
    with start_run(tmp_path, ASKING, *flags, policy=ALLOW) as run:
        assert "seen" in json.dumps(run.call("read", 1, path=str(tmp_path / "plain")))
        for number, path in enumerate((secret, tmp_path / "state" / "vault.json"), 2):
            assert "Error" in json.dumps(run.call("read", number, path=str(path)))
        fresh = secret.with_name("new")
        fresh.write_text(f"{REAL}-2")
        fresh.rename(secret)
        assert REAL not in json.dumps(run.call("read", 9, path=str(secret)))
        assert run.end() == 0, run.errors()
