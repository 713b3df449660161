"""Commit tokens: what one says, how it is signed, and the one form in which it is accepted. Pure, no I/O.

    ilk1.<key id>.<payload>.<mac>

`payload` is canonical JSON and `mac` an HMAC-SHA256 over everything before it,
version and key id too; both are base64url without padding. Any other form of
the same bytes is refused, so that a token is one string and not a family of them.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, hmac

from proxy.errors import PhaseError
from proxy.twophase.hashing import canonical

VERSION: Final = "ilk1"
MAX_TOKEN: Final = 4096
MIN_SECRET: Final = 32
MAX_SKEW: Final = 30.0  # how far in the future a token may have been issued, in seconds: the clocks of replicas differ
_FORM: Final = re.compile(r"(ilk1\.([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]+))\.([A-Za-z0-9_-]{43})")
_KEY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class BadTokenError(PhaseError):
    """A token that is not to be honoured: `bad_signature` or `expired`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Which exact call may be made, by whom and until when. Times are seconds since the epoch, to the millisecond."""

    token_id: str
    proposal_id: str
    tool_name: str
    tool_args_hash: str
    issued_at: float
    expires_at: float
    nonce: str
    composite_score: float | None
    server: str
    principal: str

    def __post_init__(self) -> None:
        """Round the times, so that what is signed is what is stored."""
        object.__setattr__(self, "issued_at", round(float(self.issued_at), 3))
        object.__setattr__(self, "expires_at", round(float(self.expires_at), 3))


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A secret that signs tokens, and its name; it verifies only tokens that expire by `not_after`."""

    key_id: str
    secret: bytes = field(repr=False)
    not_after: float | None = None

    def __post_init__(self) -> None:
        """Refuse what is no key. Raises ValueError."""
        if not _KEY_ID.fullmatch(self.key_id):
            raise ValueError("a key id is 1 to 64 letters, digits, - and _")
        if (size := len(self.secret)) < MIN_SECRET:
            raise ValueError(f"the secret of key {self.key_id} has {size} bytes; {MIN_SECRET} are the least")


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The key that signs, and older ones that still verify."""

    current: SigningKey
    older: tuple[SigningKey, ...] = ()

    def find(self, key_id: str) -> SigningKey | None:
        """Return the key of that name, if there is one."""
        return next((key for key in (self.current, *self.older) if key.key_id == key_id), None)


def issue(token: Token, ring: KeyRing) -> str:
    """Sign `token` with the current key.

    Raises ValueError or TypeError for what could not be read back: wrong types, times
    that are not finite, names that make the token longer than MAX_TOKEN.
    """
    payload = canonical(asdict(_checked(asdict(token))))
    signed = f"{VERSION}.{ring.current.key_id}.{_encode(payload)}"
    text = f"{signed}.{_encode(_mac(ring.current, signed).finalize())}"
    if len(text) > MAX_TOKEN:
        raise ValueError(f"the token would have {len(text)} characters; {MAX_TOKEN} are the most")
    return text


def read(text: object, ring: KeyRing) -> Token:
    """Return what a token says, where a key of the ring signed it. Whether it is in time is `check_time`'s.

    Raises BadTokenError `bad_signature` for anything but the one form of a token that `issue` gives.
    """
    # The length first: a regular expression over megabytes is work that an unsigned text must not cause.
    match = _FORM.fullmatch(text) if isinstance(text, str) and len(text) <= MAX_TOKEN else None
    if match is None:
        raise BadTokenError("bad_signature", "it does not have the form of a commit token")
    signed, key_id, payload, mac = match.groups()
    if (key := ring.find(key_id)) is None:
        raise BadTokenError("bad_signature", "it was signed with a key that is not known here, or no longer")
    try:
        # In constant time, and before anything in the payload is parsed.
        _mac(key, signed).verify(_decode(mac))
    except (InvalidSignature, ValueError) as error:
        raise BadTokenError("bad_signature", "the signature is not right") from error
    token = _read_payload(payload)
    # All that an old key signed before it was replaced expires by then. A later expiry was signed after that.
    if key.not_after is not None and not token.expires_at <= key.not_after:
        raise BadTokenError("bad_signature", "its key was replaced before it could have been signed")
    return token


def check_time(token: Token, now: float, skew: float = MAX_SKEW) -> None:
    """Refuse a token that is not in time. The skew never makes one live longer.

    Raises BadTokenError `expired` from `expires_at` on, and where `issued_at` is
    more than `skew` (MAX_SKEW at most) in the future.
    """
    if not now < token.expires_at:
        raise BadTokenError("expired", "its time is over")
    if not token.issued_at <= now + min(skew, MAX_SKEW):
        raise BadTokenError("expired", "it was issued in the future, so a clock is wrong")


def _read_payload(text: str) -> Token:
    """Read a payload whose signature is right: even so, only what `issue` can have written."""
    try:
        payload = _decode(text)
        token = _checked(json.loads(payload))
        if canonical(asdict(token)) == payload:
            return token
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise BadTokenError("bad_signature", "what is signed is not a commit token") from error
    raise BadTokenError("bad_signature", "what is signed is not canonical JSON")


def _checked(value: Any) -> Token:
    if value.keys() != {named.name for named in fields(Token)}:
        raise ValueError("other fields than a token's")
    numbers = {"issued_at", "expires_at", "composite_score"}
    for name, part in value.items():
        wanted: tuple[type, ...] = (int, float) if name in numbers else (str,)
        if type(part) not in wanted and not (name == "composite_score" and part is None):
            raise TypeError(f"{name} is a {type(part).__name__}")
    score = value["composite_score"]
    return Token(**{**value, "composite_score": None if score is None else float(score)})


def _mac(key: SigningKey, signed: str) -> hmac.HMAC:
    made = hmac.HMAC(key.secret, hashes.SHA256())
    made.update(signed.encode("ascii"))
    return made


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decode(text: str) -> bytes:
    """Decode base64url. Raises ValueError where `text` is not what `_encode` gives."""
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _encode(data) != text:
        raise ValueError("not the canonical base64url of these bytes")
    return data
