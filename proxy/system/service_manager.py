"""Tells a service manager (systemd's protocol, NOTIFY_SOCKET) how this process is."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

log = structlog.get_logger("interlock.supervisor")

SECONDS = 1.0


def tell_ready(environ: Mapping[str, str]) -> None:
    """Say that this process serves, and that it is the main one: it may have taken over from another."""
    if name := environ.get("NOTIFY_SOCKET"):
        _send(name, f"READY=1\nMAINPID={os.getpid()}")


def _send(name: str, text: str) -> None:
    address = f"\0{name[1:]}" if name.startswith("@") else name
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        try:
            sock.settimeout(SECONDS)
            sock.sendto(text.encode(), address)
        except OSError as error:
            # It serves all the same; a service manager that needs the word ends it in time.
            log.warning("the service manager cannot be told", socket=name, error=str(error))
