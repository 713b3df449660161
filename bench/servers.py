"""The upstream servers of a run: started once, faster than anything measured, and asked how much they served."""

from __future__ import annotations

import contextlib
import re
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trustme

from bench import nginx
from bench.install import TOOLS, Installed, find_program
from bench.processes import ROOT, free_port, started, wait_for_port

REQUESTS = re.compile(rb"requests\s+\d+ \d+ (\d+)")


@dataclass(frozen=True)
class Certificates:
    """A CA for servers on loopback, and one leaf."""

    ca: Path
    leaf: Path
    key: Path


@dataclass(frozen=True)
class Servers:
    """Where the upstream servers listen, all on loopback."""

    certificates: Certificates
    plain: int
    tls: int
    http2: int | None
    """TLS that speaks HTTP/2; only nginx does."""
    session: int
    """Plain, speaks MCP at /mcp."""
    native: bool
    """Whether it is nginx that answers."""

    def served(self) -> int:
        """Return how many requests the servers behind `plain`, `tls` and `http2` have answered."""
        ports = (self.plain,) if self.native else (self.plain, self.tls)
        return sum(self._count(port, secure=port == self.tls) for port in ports)

    def _count(self, port: int, *, secure: bool) -> int:
        import ssl  # noqa: PLC0415

        context = ssl.create_default_context(cafile=str(self.certificates.ca)) if secure else None
        url = f"{'https' if secure else 'http'}://127.0.0.1:{port}/count"
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(url, timeout=10) as response:
            said = response.read()
        found = REQUESTS.search(said)
        return int(found[1]) if found else int(said)


def make_certificates(folder: Path) -> Certificates:
    """Make a CA and a leaf for 127.0.0.1."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1", "localhost")
    made = Certificates(folder / "ca.pem", folder / "leaf.pem", folder / "leaf.key")
    authority.cert_pem.write_to_path(made.ca)
    made.leaf.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    leaf.private_key_pem.write_to_path(made.key)
    return made


def tool_python() -> Path:
    """Return the interpreter for the load client and the upstream: the one with uvloop where it is installed."""
    return TOOLS.path("python") if TOOLS.path("python").exists() else Path(sys.executable)


@contextlib.contextmanager
def servers(folder: Path, installed: Installed) -> Iterator[Servers]:
    """Run the upstream servers until the block ends."""
    with contextlib.ExitStack() as stack:
        certificates = make_certificates(folder / "certificates")
        session = _python(stack, folder, "session", [])
        program = find_program("nginx")
        if program and installed.reason("nginx") is None:
            ports = {name: free_port() for name in ("plain", "tls", "http2")}
            config = nginx.server_config(folder / "nginx", ports, certificates.leaf, certificates.key)
            server = stack.enter_context(started("upstream", nginx.command(program, config), folder))
            wait_for_port(server, ports["http2"])
            yield Servers(certificates, ports["plain"], ports["tls"], ports["http2"], session, native=True)
        else:
            plain = _python(stack, folder, "plain", [])
            tls = _python(stack, folder, "tls", [certificates.leaf, certificates.key])
            yield Servers(certificates, plain, tls, None, session, native=False)


def _python(stack: contextlib.ExitStack, folder: Path, name: str, more: list[Path]) -> int:
    port = free_port()
    argv: list[str | Path] = [tool_python(), "-m", "bench.upstream", str(port), *more]
    wait_for_port(stack.enter_context(started(f"upstream-{name}", argv, folder, cwd=ROOT)), port)
    return port
