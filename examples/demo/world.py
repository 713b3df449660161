"""The parts of the tour: a workspace, a server over HTTPS with a CA of its own, and `interlock up` beside it."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
START_SECONDS = 30
INTERLOCK = (sys.executable, "-m", "proxy.cli")


@dataclass(frozen=True)
class World:
    """Where everything is."""

    folder: Path
    server_url: str = ""
    proxy: str = ""

    @property
    def state(self) -> Path:
        """The proxy's state folder."""
        return self.folder / "state"

    @property
    def bundle(self) -> Path:
        """The roots that an agent trusts: the system's, and the proxy's CA."""
        return self.state / "ca" / "bundle.pem"

    @property
    def home(self) -> Path:
        """The home folder of the stdio server."""
        return self.folder / "home"

    def executions(self, tool: str) -> int:
        """Say how often the server really ran a tool."""
        log = self.folder / "executed.log"
        return log.read_text().split().count(tool) if log.exists() else 0

    def interlock(self, *arguments: str, width: int = 100) -> str:
        """Run an interlock command on the state folder; return what it printed, with its colours."""
        command = [*INTERLOCK, *arguments, "--state-dir", str(self.state)]
        wide = environment() | {"COLUMNS": str(width), "FORCE_COLOR": "1"}
        done = subprocess.run(
            command, capture_output=True, text=True, env=wide, cwd=REPOSITORY, timeout=60, check=False
        )
        if done.returncode:
            raise SystemExit(f"interlock {' '.join(arguments)}: {done.stderr or done.stdout}")
        return done.stdout

    def stdio_command(self) -> list[str]:
        """Return what stands in an MCP client's configuration in place of the formatter's own command."""
        flags = ["--server-name", "formatter", "--policy", str(HERE / "policy.yaml"), "--state-dir", str(self.state)]
        return [*INTERLOCK, "run", *flags, "--", sys.executable, str(HERE / "formatter.py")]


def environment() -> dict[str, str]:
    """Return the environment without settings or proxies of the caller's own."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    return {name: value for name, value in ours.items() if not name.lower().endswith("_proxy")}


@contextlib.contextmanager
def running(folder: Path) -> Iterator[World]:
    """Run the server and the proxy until the block ends."""
    world = World(folder)
    _make_workspace(world)
    ca, cert, key = _make_certificates(folder)
    serve = ["--port", "18443", "--cert", str(cert), "--key", str(key), "--log", str(folder / "executed.log")]
    # The proxy signs what it recorded when it ends, and every second for those who look before.
    up = [
        "--checkpoint-seconds",
        "1",
        "--policy",
        str(HERE / "policy.yaml"),
        "--upstream-ca",
        str(ca),
        "--state-dir",
        str(world.state),
        "--console-listen",
        _free_address(18090),
    ]
    with (
        _process([sys.executable, str(HERE / "office.py"), *serve], folder / "work") as server,
        _process(
            [*INTERLOCK, "up", "--listen", _free_address(18080), *up, "--log-level", "error"], REPOSITORY
        ) as proxy,
    ):
        assert server.stdout is not None
        port = json.loads(server.stdout.readline() or "{}").get("port")
        if port is None:
            raise SystemExit("the demo's server did not start")
        yield World(folder, f"https://localhost:{port}/mcp", _wait_for_proxy(world.state, proxy))


def _make_workspace(world: World) -> None:
    notes, keys = world.folder / "work" / "notes", world.home / ".ssh"
    notes.mkdir(parents=True)
    keys.mkdir(parents=True)
    (notes / "plan.txt").write_text("Ship on Friday. Ask Alice for the numbers.\n")
    (notes / "deploy.env").write_text(f"REGION=eu-1\nGITHUB_TOKEN={made_up_token()}\n")
    (keys / "id_ed25519").write_text("not a key, but nobody's business either\n")


def made_up_token() -> str:
    """Return what looks like a token, in pieces here so that nobody takes this file for a leak."""
    return "ghp_" + "16C7e42F292c6912" + "E7710c838347Ae178B4a"


def _make_certificates(folder: Path) -> tuple[Path, Path, Path]:
    """Make a certificate for localhost that signs itself; return the files of its CA, itself, and its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string("CN=localhost")
    now = dt.datetime.now(dt.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - dt.timedelta(hours=1)).not_valid_after(now + dt.timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    ca, cert, key_file = folder / "server-ca.pem", folder / "server.pem", folder / "server.key"
    for file in (ca, cert):
        file.write_bytes(pem)
    key_file.touch(0o600)
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return ca, cert, key_file


def _free_address(port: int) -> str:
    with contextlib.suppress(OSError):
        socket.create_server(("127.0.0.1", port)).close()
        return f"127.0.0.1:{port}"
    return "127.0.0.1:0"


@contextlib.contextmanager
def _process(command: list[str], cwd: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=cwd, env=environment()) as process:
        try:
            yield process
        finally:
            process.terminate()


def _wait_for_proxy(state: Path, proxy: subprocess.Popen[str]) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and proxy.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads((state / "run.json").read_text())["listen"])
        time.sleep(0.05)
    raise SystemExit("the proxy did not start")
