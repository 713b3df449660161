"""What there is to know of detectors before a policy that names or brings some is put in force. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from proxy.core.masking import Objection
from proxy.redact.detectors import FAMILIES, Detector, DetectorCatalog, builtin
from proxy.redact.hyperscan_db import AVAILABLE, refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Book:
    """The built-in detectors, and what makes a good one; satisfies `DetectorBook`."""

    def __init__(self, catalogue: DetectorCatalog | None = None) -> None:
        self._names = frozenset({*FAMILIES, *(detector.id for detector in (catalogue or builtin()).detectors)})

    def knows(self, name: str) -> bool:
        """Return whether `name` is a family or the id of a detector."""
        return name in self._names

    def names(self) -> Iterable[str]:
        """Return every family and id."""
        return self._names

    def objections(self, raw: Mapping[str, Any]) -> list[Objection]:
        """Say what is wrong with a detector that a policy brings; nothing where it is good."""
        try:
            detector = Detector.model_validate(dict(raw))
        except ValidationError as error:
            # What is wrong with a detector as a whole is wrong with its regex.
            return [Objection(e["loc"] or ("regex",), e["msg"].removeprefix("Value error, ")) for e in error.errors()]
        refused = refusal(detector.hint or detector.pattern) if AVAILABLE else None
        field = "regex" if detector.hint is None else "hint"
        advice = "simplify it, or give a simpler regex that is found in every match as hint"
        return [Objection((field,), f"hyperscan refuses it: {refused}; {advice}")] if refused else []
