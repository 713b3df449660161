"""Answers without the values that this process has given out: whoever sends one back, the client sees its placeholder.

A value may come back from any server and on any connection, whole or cut in two by a chunk's end. What may be the
beginning of one is held back until it is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.core.vault import CredentialUnavailableError
from proxy.gate.value_forms import ValueForms
from proxy.wire.content_coding import inflater

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from proxy.core.vault import Credential, Secret, Vault
    from proxy.wire.content_coding import Inflater

DECODED: Final = 1 << 62


class Mask:
    """Finds some values and puts their placeholders in."""

    def __init__(self, found: Iterable[tuple[ValueForms, bytes]]) -> None:
        self._found = tuple(found)

    def apply(self, data: bytes) -> bytes:
        """Return `data` masked: the same object where nothing of it is a value."""
        for forms, placeholder in self._found:
            spans = list(forms.spans(data))
            if spans:
                data = _replaced(data, spans, placeholder)
        return data

    def beginning(self, data: bytes) -> int:
        """Return from where on the end of `data` may be the beginning of a value; its length where it is none."""
        return min(forms.beginning(data) for forms, _ in self._found)


def _replaced(data: bytes, spans: Sequence[tuple[int, int]], placeholder: bytes) -> bytes:
    out, end = bytearray(), 0
    for start, stop in spans:
        # In UTF-16 and UTF-32, zero bytes stand between the characters; so they do in what takes their place.
        zeros = len(data[start + 1 : start + 4]) - len(data[start + 1 : start + 4].lstrip(b"\0"))
        out += data[end:start] + (bytes(zeros).join(bytes((byte,)) for byte in placeholder) if zeros else placeholder)
        end = stop
    return bytes(out + data[end:])


class Reflections:
    """The mask for all values given out so far."""

    def __init__(self, vault: Vault | None) -> None:
        self._vault = vault
        self._known: tuple[tuple[Credential, Secret], ...] = ()
        self._mask: Mask | None = None
        self._forms: dict[bytes, ValueForms] = {}

    @property
    def is_on(self) -> bool:
        """Whether there may ever be anything to mask."""
        return self._vault is not None

    def may_come(self) -> bool:
        """Return whether a value may be given out later, while an answer goes on."""
        try:
            return self._vault is not None and bool(self._vault.credentials())
        except CredentialUnavailableError:
            return True

    def current(self) -> Mask | None:
        """Return the mask; None where no value was given out."""
        if self._vault is None:
            return None
        known = self._vault.known_values()
        if known is not self._known:
            self._make(known)
        return self._mask

    def knows(self, secret: Secret) -> bool:
        """Return whether what finds a value is made."""
        return secret.reveal() in self._forms

    def learn(self, secret: Secret) -> None:
        """Make what finds a value, which takes a while for a long one; in any thread."""
        value = secret.reveal()
        if value not in self._forms:
            self._forms[value] = ValueForms(value)

    def _make(self, known: tuple[tuple[Credential, Secret], ...]) -> None:
        for _, secret in known:
            self.learn(secret)
        values = {secret.reveal(): credential.placeholder.encode() for credential, secret in reversed(known)}
        # The longest first: one value may be the beginning of another.
        longest_first = sorted(values, key=len, reverse=True)
        self._mask = Mask((self._forms[value], values[value]) for value in longest_first) if values else None
        self._forms = {value: self._forms[value] for value in values}
        self._known = known


class AnswerMask:
    """Masks one answer as it comes, after its content codings are undone."""

    def __init__(self, reflections: Reflections, applied: Sequence[str] = ()) -> None:
        """Make it; raises WireError for a coding that cannot be undone."""
        self._reflections = reflections
        self._inflaters: list[Inflater] = [inflater(coding, DECODED) for coding in reversed(applied)]
        self._held = b""
        self.has_changed = False

    def current(self) -> Mask | None:
        """Return the mask for all values given out by now."""
        return self._reflections.current()

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; return those that may be passed on. Raises what an Inflater raises."""
        for engine in self._inflaters:
            data = engine.feed(data)
        mask = self._reflections.current()
        if mask is None:
            return data
        whole = self._held + data if self._held else data
        masked = mask.apply(whole)
        self.has_changed |= masked is not whole
        cut = mask.beginning(masked)
        self._held = masked[cut:]
        return masked[:cut]

    def close(self) -> bytes:
        """Return what was held back; the answer is whole."""
        rest, self._held = self._held, b""
        return rest
