"""Encodes an event as it is stored: its text, and the values of its columns, so that no store has to parse it. Pure."""

from __future__ import annotations

import hashlib
import operator
from typing import TYPE_CHECKING, Any

import orjson
import uuid_utils

from proxy.core.event_columns import COLUMNS, VALUES
from proxy.core.json_codec import encode_canonical, encode_fast, encode_json, is_heavy
from proxy.core.model import AS_RECORDED, AuditEvent

if TYPE_CHECKING:
    from collections.abc import Mapping


_PROPOSAL = COLUMNS.index("proposal_id")  # the one column that is no field: it is in `detail`
# Fields that are no JSON values, in the order of their columns; the last has none.
_PLAIN = *(name for name in COLUMNS if name not in ("proposal_id", *VALUES)), "schema_version"
_plain = operator.attrgetter(*_PLAIN)
_values = operator.attrgetter(*VALUES)
_ID, _ARGUMENTS_HASH, _RESULT_DIGEST = map(_PLAIN.index, ("event_id", "arguments_hash", "result_digest"))
_HASHES = _ARGUMENTS_HASH, _RESULT_DIGEST
_ARGUMENTS, _REDACTIONS, _DETAIL = map(VALUES.index, ("arguments", "redactions", "detail"))
_NO_TEXTS: tuple[bytes | None, ...] = (None,) * len(VALUES)
_NOTHING: tuple[Any, ...] = (None, (), {})


# One JSON object, and its values as `event_columns.columns` takes them; None where the text has to be parsed.
type Encoded = tuple[str, list[Any] | None]


class Encoder:
    """Encodes events; fields without a value are left out. `stamp` names the writer; with a `key`, hashes are keyed."""

    def __init__(self, stamp: Mapping[str, str] | None = None, key: bytes | None = None) -> None:
        self._stamp = {**stamp} if stamp else {}
        self._start = f"{_slowly(self._stamp)[:-1]}," if stamp else "{"
        self._key = key

    def encode(self, event: AuditEvent) -> Encoded:
        plain, values, texts = [*_plain(event)], [*_values(event)], [*_NO_TEXTS]
        if not event.event_id:
            plain[_ID] = str(uuid_utils.uuid7())
        if event.arguments_hash == AS_RECORDED:
            # The hash is of what was forwarded, which is the very text to be stored: encode it once for both.
            forwarded = encode_canonical(event.arguments)
            if forwarded is None:  # as `wire.jsonrpc.serialise` does, which refuses NaN too
                forwarded = encode_json(event.arguments, allow_nan=False).encode()
            texts[_ARGUMENTS] = forwarded
            plain[_ARGUMENTS_HASH] = hashlib.sha256(forwarded).hexdigest()
        if self._key is not None:
            for index in _HASHES:
                if (digest := plain[index]) is not None:
                    # Not hmac.digest: it gives up the GIL, other threads go first, and commits become small and many.
                    plain[index] = hashlib.blake2b(digest.encode(), digest_size=32, key=self._key).hexdigest()
        if event.redactions:
            values[_REDACTIONS] = [finding.data() for finding in event.redactions]
        present = {name: value for name, value in zip(_PLAIN, plain, strict=True) if value is not None}
        encoded = self._quickly(plain, present, values, texts)
        if encoded is None:
            pairs = zip(VALUES, values, strict=True)
            present |= {name: value for name, value in pairs if value or value not in _NOTHING}
            return _slowly(self._stamp | present), None
        return encoded

    def _quickly(
        self, plain: list[Any], present: dict[str, Any], values: list[Any], texts: list[bytes | None]
    ) -> Encoded | None:
        """Encode an event that is neither large nor unusual; None for any other. Some values may be encoded already."""
        try:
            # A subclass (an enum, say) is passed through to fail here: json may encode it differently.
            parts = [self._start, orjson.dumps(present, option=orjson.OPT_PASSTHROUGH_SUBCLASS).decode()[1:-1]]
        except TypeError:
            return None
        columns = [*plain[:_PROPOSAL], None, *plain[_PROPOSAL:-1]]
        for name, value, known in zip(VALUES, values, texts, strict=True):
            if not value and value in _NOTHING:
                columns.append(None)
                continue
            # A heavy value goes the slow way as a whole: orjson would hold the GIL for as long as it encodes.
            quick = known if known is not None or is_heavy(value) else encode_fast(value)
            if quick is None:
                return None
            text = quick.decode()
            parts.append(f',"{name}":{text}')
            columns.append(text)
        parts.append("}")
        body = "".join(parts)
        # The one column that is inside a value: a store reads it from the text.
        return body, columns if "proposal_id" not in values[_DETAIL] else None


def encode(event: AuditEvent, stamp: Mapping[str, str] | None = None, key: bytes | None = None) -> str:
    return Encoder(stamp, key).encode(event)[0]


def _slowly(fields: dict[str, Any]) -> str:
    # Half a surrogate pair (a header's odd byte, say) is no text that a database takes.
    return encode_json(fields).encode("utf-8", "replace").decode()
