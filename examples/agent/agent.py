"""An example agent for docker-compose.yml that uses only the standard library.

It calls a tool that policy denies, through the proxy in its environment, and then tries to avoid the proxy.
Exits with 0 if the call was refused and every attempt failed, else with 1.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import urllib.error
import urllib.request

CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "read_file", "arguments": {"path": "/etc/passwd"}},
}
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
# By address, by name, the proxy's own database, and QUIC's port.
AROUND = "tcp:1.1.1.1:443 tcp:example.com:443 tcp:db:5432 udp:1.1.1.1:443"


def call(url: str) -> str:
    """Call a tool; return the answer."""
    request = urllib.request.Request(url, json.dumps(CALL).encode(), HEADERS)  # noqa: S310  the URL is the operator's
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"
    except OSError as error:
        return f"unreachable: {error}"


def reach(kind: str, host: str, port: int) -> str | None:
    """Try to connect without the proxy; return why that failed."""
    try:
        if kind == "tcp":
            socket.create_connection((host, port), timeout=3).close()
        else:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.settimeout(3)
                sock.connect((host, port))
                sock.send(b"anybody?")
                sock.recv(1)
    except OSError as error:
        return str(error)
    return None


def main() -> None:
    """Try both, and print the results."""
    answer = call(os.environ["MCP_URL"])
    print(f"read_file /etc/passwd: {answer}")
    held = "Refused by Interlock" in answer
    for way in os.environ.get("AROUND", AROUND).split():
        kind, host, port = way.split(":")
        why = reach(kind, host, int(port))
        print(f"around the proxy by {way}: {why or 'REACHED'}")
        held = held and why is not None
    print("held" if held else "NOT HELD")
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
