"""What is around a sandbox in tests: a home with secrets, folders beside it, and listeners that must hear nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.confine.ordinary import NOBODY
from tests.sandbox import acts, equipped
from tests.support.confine_fixture import addresses


class Machine:
    """A home with secrets, folders beside it, and listeners that must hear nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home, self.root, self.outside = (folder / name for name in ("home", "root", "outside"))
        for secret in (*acts.SECRETS, "document", "other document", "readable"):
            (self.home / secret).parent.mkdir(parents=True, exist_ok=True)
            (self.home / secret).write_text("secret")
        for path in (self.root / ".env", self.root / "deep" / ".env", self.root / "mine", self.outside / "secret"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("secret")
        self.tcp = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        threading.Thread(target=self._answer, daemon=True).start()
        self.abstract, self.service = (socket.socket(socket.AF_UNIX) for _ in range(2))
        self.abstract.bind(f"\0interlock-test-{folder.name}")
        self.service.bind(str(folder / "service.sock"))
        for each in (self.abstract, self.service):
            each.listen()

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while (sender := self.udp.recvfrom(100)[1]) is not None:
                self.udp.sendto(b"heard", sender)

    def given(self) -> dict[str, Any]:
        """Return what the acts are aimed at."""
        return {
            **{name: str(getattr(self, name)) for name in ("home", "root", "outside")},
            "readable": str(self.home / "readable"),
            "service": str(self.folder / "service.sock"),
            "abstract": self.abstract.getsockname()[1:].decode(),
            "tcp": self.tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "addresses": addresses(),
            "pid": os.getpid(),
            "descriptor": equipped.DESCRIPTOR,
            "key": equipped.KEY,
        }

    def changes(self) -> set[str]:
        """Return which of `acts.HOME_ACTS` really happened: a server may have a home of its own to write."""
        home = self.home
        document = next((path for path in (home / "document", home / "moved") if path.exists()), None)
        found = {
            "writes .bashrc": home / ".bashrc",
            "adds an authorized key": home / ".ssh" / "authorized_keys",
            "makes an autostart": home / ".config" / "x.desktop",
            "makes a file in the home": home / "new",
            "makes a folder in the home": home / "newdir",
            "links a document": home / "linked",
            "renames a document": home / "moved",
        }
        happened = {name for name, path in found.items() if os.path.lexists(path)}
        happened |= set() if (home / "other document").exists() else {"deletes a document"}
        if document is not None:
            state = document.stat()
            changed = {
                "changes a document's mode": state.st_mode & 0o777 == 0o600,
                "changes a document's times": state.st_atime == 1,
                "sets an attribute on a document": "user.x" in os.listxattr(document),
                "truncates a document": state.st_size == 0,
            }
            happened |= {name for name, happens in changed.items() if happens}
        return happened

    def heard(self) -> list[str]:
        """Return which listeners heard anything."""
        found = []
        for name, listener in (("tcp", self.tcp), ("abstract", self.abstract), ("service", self.service)):
            listener.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                listener.accept()[0].close()
                found.append(name)
        return found

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.udp.shutdown(socket.SHUT_RDWR)  # not connected, and yet the thread's wait ends
        for each in (self.tcp, self.udp, self.abstract, self.service):
            each.close()


@contextlib.contextmanager
def a_machine(parent: Path = Path("/var/tmp")) -> Iterator[Machine]:
    folder = Path(tempfile.mkdtemp(prefix="interlock-box-", dir=parent))
    made = Machine(folder)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder)


def give_to(machine: Machine, user: str) -> None:
    owner = NOBODY if user == "nobody" else os.getuid()
    for each in (machine.folder, *machine.folder.rglob("*")):
        os.chown(each, owner, owner, follow_symlinks=False)
