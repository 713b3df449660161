"""The YAML tables of tests/cases, each read once by a process: several test files go through the same ones."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

FOLDER = Path(__file__).parent.parent / "cases"


@functools.cache
def table(name: str) -> Any:
    """Return the content of `tests/cases/NAME.yaml`, which is everybody's: do not change it."""
    return YAML(typ="safe", pure=True).load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))
