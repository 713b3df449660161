"""Where the files that travel with the package are: in a wheel, or in a checkout."""

from __future__ import annotations

from pathlib import Path


def policies_dir() -> Path:
    """Give the folder of the shipped policies."""
    packaged = Path(__file__).parent / "_data" / "policies"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "policies"
