"""The named SQL statements of sql/queries/: a statement begins behind a line `-- name: its_name`."""

from __future__ import annotations

import re
from functools import cached_property
from typing import ClassVar
from weakref import WeakSet

from proxy.system.package_data import sql_dir

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
# Left out of what a database is sent: a comment is for the reader of the file, and a log of slow statements is shorter.
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)


class Queries:
    """The statements of one or several files, by name. The files are read once, when the first statement is used."""

    _made: ClassVar[WeakSet[Queries]] = WeakSet()

    def __init__(self, *subjects: str) -> None:
        self._subjects = subjects
        self._made.add(self)

    @classmethod
    def load_all(cls) -> None:
        """Read the statements of every module that is imported."""
        # Before workers are forked. One that replaces another after an upgrade in place runs the old code, and must not
        # run it with the new files' statements: a nonce is consumed, and rows are read, by what they say.
        for queries in cls._made:
            queries._load()  # noqa: SLF001  its own class

    def __getitem__(self, name: str) -> str:
        try:
            return self._statements[name]
        except KeyError:
            raise KeyError(f"no file of {', '.join(self._subjects)} in {sql_dir()} has a query {name!r}") from None

    def compose(self, name: str, **parts: str) -> str:
        """Return a statement with each `{part}` in it replaced. Parts are constants and marks, never values."""
        text = self[name]
        for part, replacement in parts.items():
            # Not str.format: a statement may hold braces of its own, of a JSON object.
            text = text.replace(f"{{{part}}}", replacement)
        return text

    def _load(self) -> dict[str, str]:
        # Not in an assert: `python -O` would leave the reading out.
        return self._statements

    @cached_property
    def _statements(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for subject in self._subjects:
            for name, text in parse_queries((sql_dir() / "queries" / f"{subject}.sql").read_text()).items():
                if name in found:
                    raise ValueError(f"two files of {', '.join(self._subjects)} have a query {name!r}")
                found[name] = text
        return found


def parse_queries(text: str) -> dict[str, str]:
    """Return the statements in the text of a file, by name. Raises ValueError where a name comes twice or is empty."""
    found: dict[str, str] = {}
    parts = _NAME.split(text)
    for name, part in zip(parts[1::2], parts[2::2], strict=True):
        statement = _COMMENT.sub("", part).strip().removesuffix(";")
        if name in found or not statement:
            raise ValueError(f"the query {name!r} is there twice, or has no statement")
        found[name] = statement
    return found
