"""A network of two hosts for the transparent mode: a client whose only way out is the proxy's host.

Run as `unshare --user --map-root-user --net --mount python -m tests.daemon.transparent_scene DIR`;
prints one JSON object of what the client saw. The client knows of no proxy.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.harness import make_certificates, start_interlock, start_python_server

SERVER = "198.18.0.10"
PROXY_PORT = 8085
RULES = f"""
table ip nat {{
  chain prerouting {{
    type nat hook prerouting priority dstnat;
    iifname "veth0" tcp dport 1-65535 redirect to :{PROXY_PORT}
  }}
}}
"""


def run(*command: str, stdin: str | None = None) -> str:
    return subprocess.run(command, input=stdin, check=True, capture_output=True, text=True, timeout=60).stdout


@contextlib.contextmanager
def client_host() -> Iterator[int]:
    """Return the process id whose network namespace is the client's."""
    with subprocess.Popen(["unshare", "--net", "sleep", "300"]) as sleeper:
        try:
            for _ in range(1000):
                if Path(f"/proc/{sleeper.pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink():
                    break
                run("sleep", "0.02")
            run("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1", "netns", str(sleeper.pid))
            run("ip", "addr", "add", "198.18.1.1/24", "dev", "veth0")
            run("ip", "link", "set", "veth0", "up")
            inside = ["nsenter", "-t", str(sleeper.pid), "-n"]
            run(*inside, "ip", "addr", "add", "198.18.1.2/24", "dev", "veth1")
            run(*inside, "ip", "link", "set", "veth1", "up")
            run(*inside, "ip", "route", "add", "default", "via", "198.18.1.1")
            yield sleeper.pid
        finally:
            sleeper.terminate()


CLIENT = """
import json, socket, ssl, sys, urllib.request
look_up = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: look_up("198.18.0.10", *rest, **more)  # the name's address here
context = ssl.create_default_context(cafile=sys.argv[1])
seen = {}
for scheme, port in (("http", 9000), ("https", 9443)):
    for tool in ("danger", "echo"):
        params = {"name": tool, "arguments": {"text": "hi"}}
        body = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}
        request = urllib.request.Request(
            f"{scheme}://localhost:{port}/mcp",
            json.dumps(body).encode(),
            {"Accept": "application/json, text/event-stream", "Content-Type": "application/json",
             "MCP-Protocol-Version": "2025-06-18"},
        )
        with urllib.request.urlopen(request, timeout=60, context=context if scheme == "https" else None) as answer:
            seen[f"{scheme} {tool}"] = json.load(answer)
print(json.dumps(seen))
"""


def main() -> None:
    folder = Path(sys.argv[1])
    run("ip", "link", "set", "lo", "up")
    run("ip", "addr", "add", f"{SERVER}/32", "dev", "lo")
    certificates = make_certificates(folder / "certificates")
    flags = ["--stateless", "--json", "--host", "0.0.0.0"]
    with (
        client_host() as client,
        start_python_server("python_modern", folder / "plain", flags=[*flags, "--port", "9000"]) as plain,
        start_python_server(
            "python_modern", folder / "tls", flags=[*flags, "--port", "9443"], certificates=certificates
        ) as tls,
        start_interlock(
            folder / "proxy",
            "transparent",
            upstream_ca=certificates.ca_file,
            flags=["--listen", f"0.0.0.0:{PROXY_PORT}"],
        ) as interlock,
    ):
        run("nft", "-f", "-", stdin=RULES)
        inside = ["nsenter", "-t", str(client), "-n", sys.executable, "-c", CLIENT, str(interlock.ca_file)]
        seen = json.loads(run(*inside))
        executed = [run["tool"] for server in (plain, tls) for run in server.executions()]
        events = interlock.events()
    sys.stdout.write(json.dumps({"seen": seen, "executed": executed, "events": events}))


if __name__ == "__main__":
    main()
