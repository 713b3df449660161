"""Where the packaged policies and SQL are: inside the wheel, or at the top of a checkout."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent

try:
    VERSION = version("mcp-interlock")
except PackageNotFoundError:  # a checkout on sys.path that was never installed
    VERSION = "0+unknown"


def policies_dir() -> Path:
    """Give the folder of the policies that come with Interlock."""
    return _find("policies")


def sql_dir() -> Path:
    """Give the folder of the migrations that come with Interlock."""
    return _find("sql")


def _find(name: str) -> Path:
    packaged = _PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name
