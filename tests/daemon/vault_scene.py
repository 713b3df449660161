"""A proxy with a vault, before a server that it reaches under several names."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2

from proxy.core.vault import Place
from proxy.vault.placeholder import make
from proxy.vault.vault_file import Bindings, Entry, FileSource, VaultFile
from tests.support.harness import Certificates, Interlock, ServerHandle, start_interlock, start_python_server
from tests.support.timeouts import PATIENCE

VALUE = 'sk-live-Ab"c/d+1\\x7890&z<e'
POLICY = "version: 1\ndefault: allow\n"
EVERYWHERE = (Place.HEADER, Place.PATH, Place.QUERY, Place.BODY)
NAMES = ("web.test", "site.test", "trusted.test")


class Vault:
    """The vault of one proxy."""

    def __init__(self, folder: Path, state_dir: Path) -> None:
        self.folder = folder
        self.file = VaultFile(state_dir)

    def add(self, name: str, value: str = VALUE, *, like: str | None = None, **bindings: Any) -> str:
        """Add a credential; return its placeholder."""
        self.set(name, value)
        bound = {"hosts": ("web.test",), "places": EVERYWHERE, **bindings}
        source = FileSource(path=str(self.folder / name))
        entry = Entry(placeholder=make(name, like), source=source, bindings=Bindings(**bound), added=1.0)
        self.file.add(name, entry)
        return entry.placeholder

    def set(self, name: str, value: str) -> None:
        """Let a source have this value from now on."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / name).write_text(value)


class World:
    """A proxy, its vault, and a server that it reaches under several names."""

    def __init__(self, interlock: Interlock, server: ServerHandle, folder: Path) -> None:
        self.interlock, self.server = interlock, server
        self.vault = Vault(folder, interlock.state_dir)

    def url(self, path: str = "/", host: str = "web.test") -> str:
        return f"{'https' if self.server.tls else 'http'}://{host}:{self.server.port}{path}"

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.interlock.ca_file)

    def client(self, **more: Any) -> httpx2.Client:
        return httpx2.Client(
            proxy=self.interlock.proxy_url, verify=self.trust(), trust_env=False, timeout=PATIENCE, **more
        )

    def seen(self) -> dict[str, Any]:
        """Return the last request that arrived."""
        found: dict[str, Any] = [e["arguments"] for e in self.server.executions() if e["tool"] == "request"][-1]
        return found

    def header(self, name: str) -> str:
        return str(dict(self.seen()["headers"])[name])

    def arrived(self) -> int:
        return len(self.server.executions())


@contextlib.contextmanager
def world(folder: Path, certificates: Certificates | None, *, lane: bool = True, **settings: Any) -> Iterator[World]:
    """Run a proxy and its server; without certificates the server speaks plain HTTP."""
    with (
        start_python_server("reflecting", folder / "web", certificates=certificates) as server,
        start_interlock(
            folder / "proxy",
            policy=POLICY,
            program=["tests.daemon.named"],
            upstream_ca=certificates.ca_file if certificates is not None else None,
            settings={"fast_lane": lane, **settings},
        ) as interlock,
    ):
        yield World(interlock, server, folder / "sources")
