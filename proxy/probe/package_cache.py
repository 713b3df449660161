"""Package runners inside a sinkhole: they find what was fetched before, and fetch nothing."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.trace.server_name import PACKAGE_RUNNERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# Where runners keep what they fetched, below the home, and the variable that says so.
KEPT = {
    "UV_CACHE_DIR": ".cache/uv",
    "UV_TOOL_DIR": ".local/share/uv/tools",
    "UV_PYTHON_INSTALL_DIR": ".local/share/uv/python",
    "npm_config_cache": ".npm",
    "PIPX_HOME": ".local/share/pipx",
    "BUN_INSTALL_CACHE_DIR": ".bun/install/cache",
    "DENO_DIR": ".cache/deno",
}
OFFLINE = {"UV_OFFLINE": "1", "npm_config_offline": "true", "npm_config_update_notifier": "false"}


@dataclass(frozen=True, slots=True)
class PackageCache:
    """Folders of which a server gets copies, and the variables that lead there."""

    folders: tuple[str, ...] = ()
    variables: dict[str, str] | None = None


def find_package_cache(command: Sequence[str], environ: Mapping[str, str], real_home: Path) -> PackageCache:
    """Say what a package runner needs to start what it has fetched before; nothing for other commands."""
    if posixpath.basename(command[0]) not in PACKAGE_RUNNERS:
        return PackageCache()
    places = {name: environ.get(name) or str(real_home / below) for name, below in KEPT.items()}
    there = {name: path for name, path in places.items() if posixpath.isabs(path) and posixpath.isdir(path)}
    return PackageCache(tuple(dict.fromkeys(there.values())), {**there, **OFFLINE})
