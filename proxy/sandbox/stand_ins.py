"""What a sandboxed server reads in place of the machine's own lists of accounts and hosts.

Programs look up who they run as, and `localhost`. Nobody's server needs the names of the other users, or of the
machines that an administrator listed.
"""

from __future__ import annotations

import os
from typing import Final

_HOSTS: Final = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
STAND_INS: Final = ("/etc/passwd", "/etc/group", "/etc/hosts")


def stand_ins(home: str, user: int, group: int) -> dict[str, str]:
    """Return the files, by path. One that is a link on this machine is left as it is: a file cannot be put there."""
    name = os.environ.get("USER", "")
    name = name if name.replace("-", "").replace("_", "").isalnum() else "user"
    accounts = {0: "root:x:0:0:root:/root:/bin/sh", 65534: "nobody:x:65534:65534:nobody:/nonexistent:/bin/false"}
    groups = {0: "root:x:0:", 65534: "nogroup:x:65534:"}
    if user != 0:
        accounts[user] = f"{name}:x:{user}:{group}::{_field(home)}:/bin/sh"
        groups.setdefault(group, f"{name}:x:{group}:")
    else:
        accounts[0] = f"root:x:0:{group}:root:{_field(home)}:/bin/sh"
    files = {
        "/etc/passwd": "".join(f"{line}\n" for line in accounts.values()),
        "/etc/group": "".join(f"{line}\n" for line in groups.values()),
        "/etc/hosts": _HOSTS,
    }
    return {path: text for path, text in files.items() if os.path.isfile(path) and not os.path.islink(path)}  # noqa: PTH113, PTH114


def _field(text: str) -> str:
    """Return a text as a field of an account can hold it."""
    return "/" if ":" in text or "\n" in text else text
