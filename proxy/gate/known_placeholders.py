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

_STAND_INS: Final = (0xE000, 0xF0000, 0x100000)
"""Where ranges of characters begin that nobody uses in texts; each has room for so many placeholders."""
MOST: Final = 6000


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
        known = [each for each in sorted(self._known(), key=len, reverse=True) if any(each in text for text in shown)]
        stand_ins = _stand_ins(known, strings(value)) if known else {}
        if not stand_ins:
            return masked, found
        masked, found = self._redactor.mask(_swapped(value, stand_ins), detectors, suppressions)
        return _swapped(masked, {char: placeholder for placeholder, char in stand_ins.items()}), found

    def is_clean(self, value: Json, part: Json, detectors: Sequence[str]) -> bool:
        """Say that `mask` would find nothing; a placeholder that looks like a secret makes it doubt."""
        return self._redactor.is_clean(value, part, detectors)


def _stand_ins(known: Sequence[str], texts: Iterable[str]) -> dict[str, str]:
    """Return a character for each placeholder, none of which is in the texts; nothing where there is no such range."""
    used = {ord(char) for text in texts if not text.isascii() for char in text}
    for first in _STAND_INS:
        if len(known) <= MOST and used.isdisjoint(range(first, first + len(known))):
            return {placeholder: chr(first + i) for i, placeholder in enumerate(known)}
    return {}


def _swapped(value: Any, swaps: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for old, new in swaps.items():
            value = value.replace(old, new)
        return value
    if isinstance(value, dict):
        return {key: _swapped(child, swaps) for key, child in value.items()}
    return [_swapped(child, swaps) for child in value] if isinstance(value, list) else value
