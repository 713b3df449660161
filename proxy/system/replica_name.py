"""The one name of a replica: in its fleet, in canaries, in calls that replicas share, and in what people read."""

from __future__ import annotations

import secrets
import socket
from typing import TYPE_CHECKING, Final

from proxy.system.secret_files import make_private

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "replica"


def replica_name(state_dir: Path) -> str:
    """Return what names a state folder among those that share a database. It is made once."""
    path = state_dir / FILE
    if not path.exists():
        make_private(path, f"{socket.gethostname()[:100]}-{secrets.token_hex(6)}".encode())
    return path.read_text().strip()
