"""The installed version, and the folders of policies and SQL: in the wheel, or at the top of a checkout."""

from __future__ import annotations

import functools
from pathlib import Path

PROFILES = ("watch", "balanced", "strict")
DEFAULT_PROFILE = "balanced"
_PACKAGE = Path(__file__).resolve().parents[1]


@functools.cache
def version() -> str:
    from importlib import metadata  # noqa: PLC0415  slow to import, and rarely needed

    try:
        return metadata.version("mcp-interlock")
    except metadata.PackageNotFoundError:  # a checkout that was never installed
        return "0+unknown"


def policies_dir() -> Path:
    return _find("policies")


def profile_file(name: str) -> Path:
    """Return the policy file of a profile."""
    return policies_dir() / "profiles" / f"{name}.yaml"


def sql_dir() -> Path:
    return _find("sql")


def node_proxy_file() -> Path:
    """Return the script that sends Node's HTTP through the proxy."""
    return _PACKAGE / "agent" / "node_proxy.cjs"


def _find(name: str) -> Path:
    packaged = _PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name
