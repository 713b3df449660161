"""The folders of a probe: a canary home, and copies of the caches that a package runner needs."""

from __future__ import annotations

import posixpath
import shutil
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.probe.canary import CanaryWatch, make_home
from proxy.probe.hostile import Bait, bait_files, marker
from proxy.probe.observation_facts import LOCAL_NAMES, RunContext
from proxy.probe.synthesise import SampleFiles
from proxy.trace.server_name import PACKAGE_RUNNERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

USER = "alex"
HOMES = Path("/home")
# The caches of package runners: the variable that sets the folder, and its default below the home.
CACHES = {
    "UV_CACHE_DIR": ".cache/uv",
    "UV_TOOL_DIR": ".local/share/uv/tools",
    "UV_PYTHON_INSTALL_DIR": ".local/share/uv/python",
    "npm_config_cache": ".npm",
    "PIPX_HOME": ".local/share/pipx",
    "BUN_INSTALL_CACHE_DIR": ".bun/install/cache",
    "DENO_DIR": ".cache/deno",
}
# Inside a sinkhole nothing can be fetched: without these, runners wait for a network until they give up.
OFFLINE = {"UV_OFFLINE": "1", "npm_config_offline": "true", "npm_config_update_notifier": "false"}


def home_path(base: Path, homes: Path = HOMES) -> Path:
    """Return where the server sees its home: where homes are, or, on a machine that has no such folder, in `base`."""
    if not homes.is_dir():
        return base / USER
    # Not one that exists: a server may have been started from there.
    return next(
        path for number in range(1, 1000) if not (path := homes / f"{USER}{number if number > 1 else ''}").exists()
    )


class Workspace:
    """A temporary folder with a canary home in it. Created at once; the caller must `remove` it."""

    def __init__(self) -> None:
        # Neither the folder nor the home has a name that tells a server where it is.
        self._base = Path(tempfile.mkdtemp(prefix="session-"))
        self.home = make_home(self._base / USER, home_path(self._base))
        self.run = self._base / "run"
        self.run.mkdir(mode=0o700)
        self.cwd = str(Path.cwd())

    def second_run(self) -> Path:
        """Create and return the folder of a second start, in the same home."""
        folder = self._base / "again"
        folder.mkdir(mode=0o700)
        return folder

    def remove(self) -> None:
        shutil.rmtree(self._base, ignore_errors=True)

    @property
    def roots(self) -> tuple[str, ...]:
        return str(self.home.documents), str(self.home.repository)

    def context(self) -> RunContext:
        home = self.home
        return RunContext(
            home=str(home.path),
            folder=str(self.run),
            cwd=self.cwd,
            canaries={str(home.path / c.source[2:]): c for c in home.canaries if c.source.startswith("~/")},
            watch=CanaryWatch(home.canaries),
            local_names=LOCAL_NAMES | {socket.gethostname().lower()},
        )

    def plant_bait(self) -> Bait:
        """Put files with code among the documents, before the server runs, and return what hostile inputs name."""
        token, folder = marker(), self.home.folder / "documents" / "extras"
        folder.mkdir()
        for name, text in bait_files(token).items():
            (folder / name).write_text(text)
        files = tuple(str(self.home.documents / "extras" / name) for name in bait_files(token))
        return Bait(str(self.home.path / ".ssh" / "id_rsa"), files, token)

    def samples(self) -> SampleFiles:
        file, other_file, new_file = (str(self.home.documents / name) for name in ("notes.md", "report.txt", "new.txt"))
        return SampleFiles(file, other_file, str(self.home.documents), str(self.home.repository), new_file)

    def fill_in(self, word: str) -> str:
        """Replace {home}, {documents} and {repository} by folders of the canary home."""
        home = self.home
        for name, path in (("home", home.path), ("documents", home.documents), ("repository", home.repository)):
            word = word.replace(f"{{{name}}}", str(path))
        return word


@dataclass(frozen=True, slots=True)
class PackageCache:
    folders: tuple[str, ...] = ()
    variables: dict[str, str] | None = None


def find_package_cache(command: Sequence[str], environ: Mapping[str, str], real_home: Path) -> PackageCache:
    """Return what a package runner needs to start what it has fetched before; nothing for other commands."""
    if posixpath.basename(command[0]) not in PACKAGE_RUNNERS:
        return PackageCache()
    folders = {name: environ.get(name) or str(real_home / below) for name, below in CACHES.items()}
    existing = {name: path for name, path in folders.items() if posixpath.isabs(path) and posixpath.isdir(path)}
    return PackageCache(tuple(dict.fromkeys(existing.values())), {**existing, **OFFLINE})
