"""A redactor that knows the placeholders of the vault: they look like credentials, and are none.

Exactly these texts are exempt, never their form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from proxy.core.vault import MARK
from proxy.gate.placeholders import strings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from proxy.core.interfaces import Redactor
    from proxy.core.model import Finding, Json, Suppression

_BEGINNING: Final = "${ILKPH_"
"""Of what takes the place of a placeholder: detectors know it for a reference of a template."""


class PlaceholderRedactor:
    """Masks as another redactor does, and leaves known placeholders alone."""

    def __init__(self, redactor: Redactor, known: Callable[[], frozenset[str]]) -> None:
        self._redactor = redactor
        self._known = known

    def mask(
        self, value: Json, detectors: Sequence[str], suppressions: Sequence[Suppression] = ()
    ) -> tuple[Json, tuple[Finding, ...]]:
        """Mask `value`; nothing is looked for twice but where something was found beside a placeholder."""
        masked, found = self._redactor.mask(value, detectors, suppressions)
        if not found:
            return masked, found
        shown = [text for text in strings(value) if MARK in text]
        if not shown:
            return masked, found
        known = [each for each in sorted(self._known(), key=len, reverse=True) if any(each in text for text in shown)]
        stand_ins = _stand_ins(known, strings(value)) if known else {}
        if not stand_ins:
            return masked, found
        masked, found = self._redactor.mask(_swapped(value, stand_ins), detectors, suppressions)
        return _swapped(masked, {text: placeholder for placeholder, text in stand_ins.items()}), found

    def is_clean(self, value: Json, part: Json, detectors: Sequence[str]) -> bool:
        """Say that `mask` would find nothing; a placeholder that looks like a secret makes it doubt."""
        return self._redactor.is_clean(value, part, detectors)


def without(value: Any, known: Callable[[], frozenset[str]]) -> Any:
    """Return a value with a blank in place of each known placeholder."""
    if not any(MARK in text for text in strings(value)):
        return value
    return _swapped(value, dict.fromkeys(sorted(known(), key=len, reverse=True), " "))


def _stand_ins(known: Sequence[str], texts: Iterable[str]) -> dict[str, str]:
    """Return a text for each placeholder, none of which is in `texts`; nothing where that cannot be said."""
    if any(_BEGINNING in text for text in texts):
        return {}
    return {placeholder: f"{_BEGINNING}{i}}}" for i, placeholder in enumerate(known)}


def _swapped(value: Any, swaps: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for old, new in swaps.items():
            value = value.replace(old, new)
        return value
    if isinstance(value, dict):
        return {key: _swapped(child, swaps) for key, child in value.items()}
    return [_swapped(child, swaps) for child in value] if isinstance(value, list) else value
