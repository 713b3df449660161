"""Where a probe plays: a folder of its own with a canary home in it, and what is known of both."""

from __future__ import annotations

import shutil
import socket
import tempfile
from pathlib import Path

from proxy.probe.canary import CanaryWatch, make_home
from proxy.probe.observation_facts import LOCAL_NAMES, RunContext
from proxy.probe.synthesise import SampleFiles


class Workspace:
    """Made on disk at once; `remove` it."""

    def __init__(self) -> None:
        self._base = Path(tempfile.mkdtemp(prefix="interlock-probe-"))
        self.home = make_home(self._base / "home")
        self.run = self._base / "run"
        self.run.mkdir(mode=0o700)
        self.cwd = str(Path.cwd())

    def remove(self) -> None:
        """Leave nothing of it."""
        shutil.rmtree(self._base, ignore_errors=True)

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders that a server is told of."""
        return str(self.home.documents), str(self.home.repository)

    def context(self) -> RunContext:
        """Return what is known of the place before anything is seen."""
        home = self.home
        return RunContext(
            home=str(home.folder),
            folder=str(self.run),
            cwd=self.cwd,
            canaries={str(home.folder / c.source[2:]): c for c in home.canaries if c.source.startswith("~/")},
            watch=CanaryWatch(home.canaries),
            local_names=LOCAL_NAMES | {socket.gethostname().lower()},
        )

    def samples(self) -> SampleFiles:
        """Return what arguments may point at."""
        documents = self.home.documents
        return SampleFiles(
            file=str(documents / "notes.md"),
            other_file=str(documents / "report.txt"),
            folder=str(documents),
            repository=str(self.home.repository),
            new_file=str(documents / "new.txt"),
        )

    def fill_in(self, word: str) -> str:
        """Put the canary home's folders where a word of the caller's asks for them."""
        home = self.home
        for name, path in (("home", home.folder), ("documents", home.documents), ("repository", home.repository)):
            word = word.replace(f"{{{name}}}", str(path))
        return word
