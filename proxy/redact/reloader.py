"""The masker in force: made anew where a policy brings other detectors, so that it goes with the policy in force."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from proxy.errors import PolicyError
from proxy.redact import Masker, builtin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from proxy.core.masking import Suppression
    from proxy.core.model import Finding, Json
    from proxy.redact.hyperscan_db import DatabaseCache

REMEMBERED = 4
"""How many maskers are kept for calls that were decided before a reload."""


class LiveMasker:
    """Masks with the detectors of the policy in force; satisfies `Redactor`."""

    def __init__(self, key: bytes, cache: DatabaseCache | None = None) -> None:
        self._key = key
        self._cache = cache
        self._maskers: tuple[Masker, ...] = ()
        self._detectors: Sequence[Mapping[str, Any]] | None = None
        self._of_names: dict[tuple[str, ...], Masker] = {}

    def prepare(self, detectors: Sequence[Mapping[str, Any]]) -> Callable[[], None]:
        """Make the masker for a policy that brings `detectors`; return what puts it in force.

        May take seconds and may run in any thread. Raises PolicyError where
        there is no masking with these detectors.
        """
        if detectors == self._detectors:
            return lambda: None
        try:
            masker = Masker(self._key, builtin().extended(detectors), cache=self._cache)
        except PolicyError:
            raise
        except Exception as error:
            raise PolicyError(f"the detectors cannot be compiled together: {error}") from error
        return partial(self._adopt, masker, detectors)

    def _adopt(self, masker: Masker, detectors: Sequence[Mapping[str, Any]]) -> None:
        self._detectors = detectors
        self._maskers = (masker, *self._maskers)[:REMEMBERED]
        self._of_names = {}

    def mask(
        self, value: Json, detectors: Sequence[str], suppressions: Sequence[Suppression] = ()
    ) -> tuple[Json, tuple[Finding, ...]]:
        """Mask as `Masker.mask` does.

        A call decided before a reload may name a detector that is gone: it is
        masked with the last masker that knows it. Raises PolicyError where none does.
        """
        return self._masker(detectors).mask(value, detectors, suppressions)

    def is_clean(self, value: Json, part: Json, detectors: Sequence[str]) -> bool:
        """Say that there is nothing to mask, as `Masker.is_clean` does."""
        return self._masker(detectors).is_clean(value, part, detectors)

    def _masker(self, detectors: Sequence[str]) -> Masker:
        """Return the masker for what rules of the policy name, which are a few lists over and over."""
        names = tuple(detectors)
        chosen = self._of_names  # taken first: what is chosen before a reload is not remembered after it
        masker = chosen.get(names)
        if masker is None:
            masker = chosen[names] = self._choose(names)
        return masker

    def _choose(self, names: tuple[str, ...]) -> Masker:
        maskers = self._maskers
        if not maskers:
            raise PolicyError("nothing can be masked before a policy is in force")
        for masker in maskers:
            if masker.catalogue.knows(*names):
                return masker
        return maskers[0]
