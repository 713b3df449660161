"""Agents hold placeholders. Values go where they are bound to and nowhere else, and come back to nobody."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.core.vault import Place
from proxy.vault.placeholder import make
from proxy.vault.vault_file import Bindings, Entry, FileSource, VaultFile
from tests.servers.reflecting import FORMS
from tests.support.harness import (
    Certificates,
    Interlock,
    ServerHandle,
    make_certificates,
    start_interlock,
    start_python_server,
)
from tests.support.timeouts import PATIENCE

VALUE = 'sk-live-Ab"c/d+1\\x7890&z<é'.replace("é", "e")
POLICY = "version: 1\ndefault: allow\n"
EVERYWHERE = (Place.HEADER, Place.PATH, Place.QUERY, Place.BODY)


class Vault:
    """The vault of one proxy."""

    def __init__(self, folder: Path, state_dir: Path) -> None:
        self._folder = folder
        self.file = VaultFile(state_dir)
        self.values: dict[str, str] = {}

    def add(self, name: str, value: str = VALUE, *, like: str | None = None, **bindings: Any) -> str:
        """Add a credential; return its placeholder."""
        self.set(name, value)
        bound = {"hosts": ("web.test",), "places": EVERYWHERE, **bindings}
        source = FileSource(path=str(self._folder / name))
        entry = Entry(placeholder=make(name, like), source=source, bindings=Bindings(**bound), added=1.0)
        self.file.add(name, entry)
        return entry.placeholder

    def set(self, name: str, value: str) -> None:
        self._folder.mkdir(exist_ok=True)
        (self._folder / name).write_text(value)
        self.values[name] = value


class World:
    """A proxy, its vault, and a server that it reaches under several names."""

    def __init__(self, interlock: Interlock, server: ServerHandle, vault: Vault, certificates: Certificates) -> None:
        self.interlock, self.server, self.vault, self.certificates = interlock, server, vault, certificates

    def url(self, path: str = "/", host: str = "web.test") -> str:
        return f"https://{host}:{self.server.port}{path}"

    def client(self, **more: Any) -> httpx2.Client:
        return httpx2.Client(
            proxy=self.interlock.proxy_url,
            verify=ssl.create_default_context(cafile=self.interlock.ca_file),
            trust_env=False,
            timeout=PATIENCE,
            **more,
        )

    def seen(self) -> dict[str, Any]:
        """Return the last request that arrived."""
        found: dict[str, Any] = [e["arguments"] for e in self.server.executions() if e["tool"] == "request"][-1]
        return found

    def header(self, name: str) -> str:
        return dict(self.seen()["headers"])[name]

    def arrived(self) -> int:
        return len(self.server.executions())


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"), "web.test", "site.test", "trusted.test")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[ServerHandle]:
    with start_python_server("reflecting", tmp_path_factory.mktemp("web"), certificates=certificates) as running:
        yield running


@pytest.fixture(scope="module", params=["lane", "layers"])
def world(
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
    server: ServerHandle,
    certificates: Certificates,
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("proxy")
    settings = {"fast_lane": request.param == "lane"}
    with start_interlock(
        folder, policy=POLICY, program=["tests.daemon.named"], upstream_ca=certificates.ca_file, settings=settings
    ) as interlock:
        yield World(interlock, server, Vault(folder / "sources", interlock.state_dir), certificates)


@pytest.fixture(scope="module")
def key(world: World) -> str:
    return world.vault.add("key")


@pytest.fixture
def client(world: World) -> Iterator[httpx2.Client]:
    with world.client() as made:
        yield made


def reason(response: httpx2.Response) -> str:
    return str(response.json()["error"]["data"]["reason"])


def test_a_value_stands_in_a_header_and_the_answer_has_the_placeholder(world: World, client, key: str) -> None:
    response = client.get(world.url(), headers={"Authorization": f"Bearer {key}"})
    assert world.header("authorization") == f"Bearer {VALUE}"
    assert dict(response.json()["headers"])["authorization"] == f"Bearer {key}"


def test_a_value_stands_in_a_login(world: World, client, key: str) -> None:
    response = client.get(world.url(), auth=("me", key))
    assert base64.b64decode(world.header("authorization").removeprefix("Basic ")).decode() == f"me:{VALUE}"
    assert f"Basic {base64.b64encode(b'me:').decode()}{key}" in response.text


def test_a_value_stands_in_the_path_and_the_query(world: World, client, key: str) -> None:
    response = client.get(world.url(f"/bot{key}/send?a=1&key={key}&b=2"))
    seen = world.seen()
    assert httpx2.URL(f"http://x{seen['path']}").path == f"/bot{VALUE}/send"
    assert dict(httpx2.QueryParams(seen["query"])) == {"a": "1", "key": VALUE, "b": "2"}
    assert response.json()["path"] == f"/bot{key}/send"


def test_a_value_stands_in_a_body_of_json_and_not_in_its_keys(world: World, client, key: str) -> None:
    body = f'{{"a": ["x {key} y"],  "{key}": 1e2, "b": "{key}"}}'
    response = client.post(world.url(), content=body, headers={"Content-Type": "application/json"})
    written = json.dumps(VALUE)[1:-1]
    assert world.seen()["body"] == f'{{"a": ["x {written} y"],  "{key}": 1e2, "b": "{written}"}}'
    assert json.loads(response.json()["body"]) == {"a": [f"x {key} y"], key: 100, "b": key}


def test_a_value_stands_in_a_form_and_in_a_text(world: World, client, key: str) -> None:
    client.post(world.url(), data={"a": "1", "key": key})
    assert dict(httpx2.QueryParams(world.seen()["body"])) == {"a": "1", "key": VALUE}
    client.post(world.url(), content=f"my key is {key}.")
    assert world.seen()["body"] == f"my key is {VALUE}."
    client.post(world.url(), files={"f": ("a.bin", b"\xff\x00"), "key": (None, key)})
    assert f"\r\n\r\n{VALUE}\r\n" in world.seen()["body"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["whole", "gzip", "chunks", "gzip in chunks"])
def test_a_value_comes_back_in_no_form(world: World, client, key: str, form: str, how: str) -> None:
    assert client.get(world.url("/keep"), headers={"Authorization": f"Bearer {key}"}).status_code == 204
    with world.client() as other:
        response = other.get(world.url("/again", "site.test"), params={"form": form, "how": how})
    assert response.status_code == 200
    data = response.content.replace(b"\0", b"")
    assert key.encode() in data
    kept = FORMS[form](VALUE).replace(b"\0", b"").strip()
    assert kept not in data
    assert data.startswith(b"before ")
    assert data.endswith(b" after")
