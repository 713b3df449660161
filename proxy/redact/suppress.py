"""Suppressions: findings that somebody has looked at and that a policy lets be. Pure."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxy.core.masking import Suppression
    from proxy.core.model import Finding

_WILD: Final = {"**": ".*", "*": r"[^.\[\]]*", "?": r"[^.\[\]]"}


def cover(suppressions: Iterable[Suppression], finding: Finding) -> bool:
    """Return whether any of `suppressions` means `finding`."""
    return any(_covers(entry, finding) for entry in suppressions)


def _covers(entry: Suppression, finding: Finding) -> bool:
    return (
        entry.fingerprint in {None, finding.fingerprint}
        and (entry.detector is None or fnmatchcase(finding.detector, entry.detector))
        and (entry.path is None or _path_regex(entry.path).fullmatch(finding.path) is not None)
    )


@lru_cache(maxsize=256)
def _path_regex(glob: str) -> re.Pattern[str]:
    """Make `files[*].name` mean what it says: `*` is part of one step, `**` is any number of them."""
    parts = (_WILD.get(part, re.escape(part)) for part in re.split(r"(\*\*|\*|\?)", glob))
    return re.compile("".join(parts), re.DOTALL)
