"""Which calls are like one that was approved: what of a call is compared, and how. Pure, no I/O.

Each argument counts by its type and a keyed hash of its value. A standing approval names the arguments that may have
other values of the same type; everything else has to be equal, and no argument may be missing or added.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Any, Final

from proxy.twophase.hashing import canonical

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from proxy.core.model import JsonObject
    from proxy.twophase.tokens import SigningKey

_PURPOSE: Final = b"interlock argument of a standing approval\0"


def argument_parts(arguments: JsonObject | None, key: SigningKey) -> dict[str, str]:
    """Return each argument's type and hash. Raises NotExactError for what has no exact form."""
    # Keyed: an argument by itself may be an account number, which somebody who reads the store could guess and compare.
    return {name: f"{_type(value)}:{_hash({name: value}, key)}" for name, value in sorted((arguments or {}).items())}


def like_key(parts: Mapping[str, str], vary: Collection[str]) -> str:
    """Return the hash that calls have in common where only the arguments in `vary` differ, and these not in type."""
    shared = {name: part.partition(":")[0] if name in vary else part for name, part in parts.items()}
    return hashlib.sha256(canonical(shared)).hexdigest()


def _hash(value: JsonObject, key: SigningKey) -> str:
    return hmac.new(key.secret, _PURPOSE + canonical(value), hashlib.sha256).hexdigest()


def _type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
