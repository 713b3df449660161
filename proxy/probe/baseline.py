"""Stores what a server was when it was last accepted: its tools as listed, and their observed behaviour."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.errors import ConfigError
from proxy.system.secret_files import write_private
from proxy.trace.server_name import without_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from proxy.core.model import JsonObject
    from proxy.probe.comparison import Profile

FOLDER = "probe"


@dataclass(frozen=True, slots=True)
class ServerBaseline:
    """The tool objects by name, and the profiles by tool; the profile of start-up has an empty name."""

    tools: Mapping[str, JsonObject]
    profiles: Mapping[str, Profile]


def command_key(name: str, command: Sequence[str]) -> str:
    """Return what the baseline of a command is kept by: two servers of one name are told apart by their commands.

    A package's version is left out: another version of the same server is what a baseline is compared with.
    """
    words = [os.path.realpath(word) if os.path.exists(word) else without_version(word) for word in command]  # noqa: PTH110
    return json.dumps([name, *words])


def _file(state_dir: Path, server: str) -> Path:
    # A hash: a server's name is chosen by its command line, and must not choose a path.
    return state_dir / FOLDER / f"{hashlib.sha256(server.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}.json"


def load(state_dir: Path, server: str) -> ServerBaseline | None:
    """Return a server's baseline; None where it was never probed. Raises ConfigError where it cannot be read."""
    file = _file(state_dir, server)
    try:
        stored = json.loads(file.read_bytes())
        return ServerBaseline(dict(stored["tools"]), dict(stored["profiles"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file} cannot be read ({error}); restore it, or delete it to begin anew") from error


def save(state_dir: Path, server: str, baseline: ServerBaseline) -> None:
    stored = {"server": server, "tools": dict(baseline.tools), "profiles": dict(baseline.profiles)}
    write_private(_file(state_dir, server), json.dumps(stored).encode())
