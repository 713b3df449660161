"""The launchers of a local server that `bench.sandbox_compare` puts side by side, each as its own documents say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.node_tools import NODE
from tests.support.processes import REPOSITORY

SRT = "@anthropic-ai/sandbox-runtime@0.0.83"
SRT_PROGRAM = Path("node_modules/@anthropic-ai/sandbox-runtime/dist/cli.js")
ALLOW = "version: 1\ndefault: allow\n"
INTERLOCK = [sys.executable, "-m", "proxy.cli"]


def install_srt(folder: Path) -> None:
    """Install srt from npm into a folder outside of the repository, once."""
    if (folder / SRT_PROGRAM).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    words = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder), SRT]
    subprocess.run(words, check=True, timeout=300)


@dataclass(frozen=True)
class Place:
    """Where one server is started: its folders, what it may reach, and the state of the proxy."""

    home: Path
    root: Path
    state: Path
    settings: Path  # a folder for settings files, outside of what a server may touch
    srt: Path
    readable: Path | None = None
    hosts: tuple[str, ...] = ()
    traced: bool = False
    programs: tuple[str, ...] = ("/bin/true",)

    def environ(self) -> dict[str, str]:
        """Return what a launcher gets: a token that no server should see, and the programs that it needs."""
        return {
            "PATH": f"{NODE.resolve().parent}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "SECRET_TOKEN": "t",
            "PYTHONPATH": str(REPOSITORY),
        }

    def written(self, name: str, value: Any) -> str:
        """Return the path of a file with a value."""
        path = self.settings / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return str(path)


def _bare(_: Place, command: Sequence[str]) -> list[str]:
    return list(command)


def _srt(place: Place, command: Sequence[str], name: str, files: dict[str, list[str]]) -> list[str]:
    network = {"allowedDomains": [host.rpartition(":")[0] for host in place.hosts], "deniedDomains": []}
    settings = {"network": network, "filesystem": files}
    words = ["--settings", place.written(f"{name}.json", settings), "--", *command]
    return [str(NODE), str(place.srt / SRT_PROGRAM), *words]


def _srt_list(place: Place, command: Sequence[str]) -> list[str]:
    files = {"denyRead": ["~/.ssh"], "allowWrite": ["."], "denyWrite": [".env", "secrets/"]}
    return _srt(place, command, "srt-list", files)


def _srt_workspace(place: Place, command: Sequence[str]) -> list[str]:
    # The README denies /home; the homes of this comparison are elsewhere. A server's own program must be readable.
    granted = [".", *([str(place.readable)] if place.readable else [])]
    files = {"denyRead": [str(place.home)], "allowRead": granted, "allowWrite": ["."], "denyWrite": []}
    return _srt(place, command, "srt-workspace", files)


def _run(place: Place, command: Sequence[str], *flags: str) -> list[str]:
    trace = "require" if place.traced else "off"
    policy = place.written("policy.yaml", ALLOW)
    words = ["run", "--state-dir", str(place.state), "--policy", policy, "--trace", trace, *flags, "--", *command]
    return [*INTERLOCK, *words]


def _run_confine(place: Place, command: Sequence[str]) -> list[str]:
    return _run(place, [*INTERLOCK, "confine", "--state-dir", str(place.state), "--", *command])


def _sandbox(place: Place, command: Sequence[str]) -> list[str]:
    profile = {
        "extends": ["python", "node"],
        "read": ["$HOME"],  # broad on purpose: all of a home, and none of its secrets
        "write": [str(place.root), "$TMP"],
        "hide": ["**/.env"],
        "exec": list(place.programs),
        "network": list(place.hosts) or "none",
    }
    return _run(place, command, f"--sandbox=require:{place.written('profile.yaml', profile)}")


@dataclass(frozen=True)
class Way:
    """A way to start a server. `hides` where it keeps files from it, `tells` where it may tell what it refused."""

    title: str
    words: Callable[[Place, Sequence[str]], list[str]]
    hides: bool = False
    tells: bool = False
    note: str = field(default="")


WAYS: dict[str, Way] = {
    "bare": Way("bare", _bare),
    "srt": Way("srt, deny list", _srt_list, hides=True, tells=True),
    "srt-workspace": Way("srt, workspace only", _srt_workspace, hides=True, tells=True),
    "run": Way("`run`", _run),
    "confine": Way("`run` + `confine`", _run_confine),
    "sandbox": Way("`run --sandbox`", _sandbox, hides=True, tells=True),
}
