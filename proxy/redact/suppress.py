"""Suppressions: findings that somebody has looked at and that a policy lets be. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxy.masking import Suppression
    from proxy.model import Finding


def cover(suppressions: Iterable[Suppression], finding: Finding) -> bool:
    """Tell whether any of `suppressions` means `finding`."""
    return any(_covers(entry, finding) for entry in suppressions)


def _covers(entry: Suppression, finding: Finding) -> bool:
    return (
        entry.fingerprint in {None, finding.fingerprint}
        and (entry.detector is None or fnmatchcase(finding.detector, entry.detector))
        and (entry.path is None or fnmatchcase(finding.path, _literal_brackets(entry.path)))
    )


def _literal_brackets(glob: str) -> str:
    """Make `files[0].name` and `files[*].name` mean what they say."""
    return glob.replace("[", "[[]")
