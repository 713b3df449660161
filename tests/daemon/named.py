"""`interlock` on a machine with names of its own: `python -m tests.daemon.named up …`."""

from __future__ import annotations

import itertools
import socket
from typing import Any
from unittest import mock

from proxy import cli

NAMES = {
    "mcp.test": itertools.repeat("127.0.0.1"),
    "site.test": itertools.repeat("127.0.0.1"),
    "web.test": itertools.repeat("127.0.0.1"),
    "closed.test": itertools.repeat("127.0.0.1"),
    "trusted.test": itertools.repeat("127.0.0.1"),
    "metadata.test": itertools.repeat("169.254.169.254"),
    "denied.test": itertools.repeat("127.0.0.2"),
    "rebinding.test": itertools.chain(["127.0.0.1"], itertools.repeat("127.0.0.2")),
}
look_up = socket.getaddrinfo


def answer(host: Any, *rest: Any, **more: Any) -> Any:
    return look_up(next(NAMES[host]) if host in NAMES else host, *rest, **more)


def main() -> None:
    # uvloop looks names up in C, where nobody can answer for it.
    with (
        mock.patch("socket.getaddrinfo", answer),
        mock.patch("proxy.system.event_loop.loop_factory", return_value=None),
    ):
        cli.main()


if __name__ == "__main__":
    main()
