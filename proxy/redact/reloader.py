"""The masker in force, replaced when a new policy brings other detectors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from proxy.errors import PolicyError
from proxy.redact import Masker, builtin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from proxy.core.model import Finding, Json, Suppression
    from proxy.redact.hyperscan_db import DatabaseCache

REMEMBERED = 4  # how many maskers stay available for calls that were decided before a reload


class LiveMasker:
    """Masks with the detectors of the policy in force; satisfies `Redactor`."""

    def __init__(self, key: bytes, cache: DatabaseCache | None = None) -> None:
        self._key = key
        self._cache = cache
        self._maskers: tuple[Masker, ...] = ()
        self._detectors: Sequence[Mapping[str, Any]] | None = None
        self._by_names: dict[tuple[str, ...], Masker] = {}

    def prepare(self, detectors: Sequence[Mapping[str, Any]]) -> Callable[[], None]:
        """Make the masker for a policy that brings `detectors`; return the function that puts it in force.

        May take seconds and may run in any thread. Raises PolicyError where these detectors cannot be compiled.
        """
        if detectors == self._detectors:
            return lambda: None
        try:
            masker = Masker(self._key, builtin().extended(detectors), cache=self._cache)
        except PolicyError:
            raise
        except Exception as error:  # whatever hyperscan raises: the policy is refused, and the old one stays
            raise PolicyError(f"the detectors cannot be compiled together: {error}") from error
        return partial(self._adopt, masker, detectors)

    def _adopt(self, masker: Masker, detectors: Sequence[Mapping[str, Any]]) -> None:
        self._detectors = detectors
        self._maskers = (masker, *self._maskers)[:REMEMBERED]
        self._by_names = {}

    def mask(
        self, value: Json, detectors: Sequence[str], suppressions: Sequence[Suppression] = ()
    ) -> tuple[Json, tuple[Finding, ...]]:
        """Mask as `Masker.mask` does.

        A call decided before a reload may name a detector that is gone: it is masked with the last masker that
        knows it. Raises PolicyError where none does.
        """
        return self._masker(detectors).mask(value, detectors, suppressions)

    def is_clean(self, value: Json, part: Json, detectors: Sequence[str]) -> bool:
        """Return True where there is surely nothing to mask, as `Masker.is_clean` does."""
        return self._masker(detectors).is_clean(value, part, detectors)

    def _masker(self, detectors: Sequence[str]) -> Masker:
        names = tuple(detectors)
        # Rules name a few lists over and over. The dictionary is read once: a choice made during a reload goes into the
        # old one and is dropped with it.
        chosen = self._by_names
        masker = chosen.get(names)
        if masker is None:
            maskers = self._maskers
            if not maskers:
                raise PolicyError("nothing can be masked before a policy is in force")
            masker = next((each for each in maskers if each.catalog.knows(*names)), maskers[0])
            chosen[names] = masker
        return masker
