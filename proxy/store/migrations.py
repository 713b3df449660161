"""The numbered migrations that come with Interlock, as they are on disk."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from proxy.system.package_data import sql_dir

if TYPE_CHECKING:
    from pathlib import Path

_NAME = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of a schema: applied once, and never changed afterwards."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """Tells whether the text is the one that was applied."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.version:04}_{self.name}"


def migrations(database: Literal["postgres", "sqlite"]) -> tuple[Migration, ...]:
    """Return the migrations of one kind of database, in order."""
    return read_migrations(sql_dir() / database)


def read_migrations(folder: Path) -> tuple[Migration, ...]:
    """Return the migrations in a folder, in order.

    Raises ValueError where they are not numbered from 1 on, one by one.
    """
    found = []
    for number, file in enumerate(sorted(folder.glob("*.sql")), start=1):
        match = _NAME.fullmatch(file.name)
        if match is None or int(match[1]) != number:
            raise ValueError(f"{file} is not {number:04}_name.sql")
        found.append(Migration(number, match[2], file.read_text()))
    return tuple(found)
