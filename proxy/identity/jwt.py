"""Verifies signed JSON Web Tokens, of agents and of operators alike. Does no I/O: keys and the time are given.

What RFC 8725 asks for: algorithms by allow list, none that needs a shared secret, the key by the issuer's own set and
never by what the token brings along (`jwk`, `jku`, `x5c`, `x5u` are not read), issuer and audience always checked.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from proxy.errors import CredentialError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Public keys alone. With `none` or HS256 anybody could sign: the "secret" would be a key that everybody has.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
MAX_TOKEN: Final = 64 << 10
MAX_KEYS: Final = 128
MIN_RSA_BITS: Final = 2048
MAX_RSA_BITS: Final = 8192
MAX_KID: Final = 512
SKEW_SECONDS: Final = 60
MAX_TIME: Final = 1e11  # the year 5138; a NaN is not below it either
_PUBLIC: Final = frozenset({"kty", "n", "e", "crv", "x", "y", "kid"})
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519"}
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_-]+")
# A header with one of these is of another kind of token, or must not be taken by whoever does not know the field.
_FOREIGN: Final = frozenset({"crit", "b64", "zip", "enc"})


_PRIMES: Final = (11, 13, 17, 19, 37, 53, 61, 71, 73, 79, 97, 103, 107, 109, 127, 151, 157)
_POWERS: Final = {prime: frozenset(pow(65537, power, prime) for power in range(prime)) for prime in _PRIMES}


class TokenError(CredentialError):
    """A token that is refused: a reason code, and a sentence that says why without quoting the token."""


class UnknownKeyError(TokenError):
    """The token names a key that is not in the set: the issuer may have changed its keys."""

    def __init__(self, message: str = "it is signed with a key that the issuer does not list") -> None:
        super().__init__("token_key", message)


@dataclass(frozen=True, slots=True)
class ParsedToken:
    """A token that was taken apart and that nothing is proven of yet."""

    text: str
    algorithm: str
    kid: str | None
    kind: str | None
    """What its `typ` says, in lower case and without `application/`."""
    claims: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say."""

    issuer: str | None
    """None: it need not name an issuer, as a JWT-SVID need not."""
    audiences: Sequence[str]
    algorithms: Sequence[str] = ALGORITHMS
    kinds: Sequence[str] = ()
    """The `typ` that it must have, such as at+jwt, or "" where it need not have one; nothing: any."""
    skew: float = SKEW_SECONDS


def parse_token(text: str, limit: int = MAX_TOKEN) -> ParsedToken:
    """Take a token apart. Raises TokenError for what is not one signed token in its one form."""
    if len(text) > limit:
        raise TokenError("token_too_large", f"it has more than {limit} characters")
    parts = text.split(".")
    if len(parts) != 3 or not all(_SEGMENT.fullmatch(part) for part in parts):
        # Also where the signature is empty, as with `alg: none`.
        raise TokenError("token_malformed", "it is not a signed token of three parts")
    header, claims = _object(parts[0]), _object(parts[1])
    _decode(parts[2])
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenError("token_algorithm", "it is not signed in a way that is accepted")
    if _FOREIGN & header.keys():
        raise TokenError("token_malformed", "its header has a field that is not accepted")
    if not isinstance(kid, str | None) or len(kid or "") > MAX_KID or not isinstance(kind, str | None):
        raise TokenError("token_malformed", "its header cannot be read")
    return ParsedToken(text, algorithm, kid, kind and kind.lower().removeprefix("application/"), claims)


class KeySet:
    """The public keys of an issuer, imported once. Keys for something else are left out."""

    def __init__(self, document: Any, uses: Sequence[str] = ("sig",)) -> None:
        """Read a JSON Web Key Set. Raises ValueError for what is none."""
        listed = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(listed, list) or len(listed) > MAX_KEYS:
            raise ValueError(f"it is no JSON object with a list `keys` of at most {MAX_KEYS}")
        self._keys = [key for one in listed if isinstance(one, dict) and (key := _import(one, uses)) is not None]

    def __len__(self) -> int:
        return len(self._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeySet) and self._thumbprints() == other._thumbprints()

    __hash__ = None  # type: ignore[assignment]

    def _thumbprints(self) -> set[tuple[str | None, str]]:
        return {(key.kid, key.thumbprint) for key in self._keys}

    def verify(self, token: ParsedToken) -> None:
        """Raise TokenError unless one of the keys signed a token."""
        fitting = [key for key in self._keys if key.fits(token)]
        # Two keys of one name, or no name and several keys: which one is meant is a guess, and none is made.
        if len(fitting) != 1:
            raise UnknownKeyError
        fitting[0].verify(token)


@dataclass(frozen=True, slots=True)
class _Key:
    kid: str | None
    kty: str
    curve: str | None
    algorithm: str | None
    thumbprint: str
    imported: Any
    is_weak: bool

    def fits(self, token: ParsedToken) -> bool:
        wanted = _CURVES.get(token.algorithm)
        kind = "RSA" if wanted is None else "OKP" if token.algorithm == "EdDSA" else "EC"
        return (
            self.kty == kind
            and (wanted is None or self.curve == wanted)
            and self.algorithm in (None, token.algorithm)
            and token.kid in (None, self.kid)
        )

    def verify(self, token: ParsedToken) -> None:
        from joserfc import jws  # noqa: PLC0415  for those who use signed tokens alone

        if self.is_weak:
            raise TokenError("token_key", "the issuer's key is too short, or weak in another way")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Of EdDSA's name, which issuers use: it is what is verified.
                jws.deserialize_compact(token.text.encode(), self.imported, algorithms=[token.algorithm])
        except Exception as error:
            # Whatever a stranger's bytes make the library raise: the token is refused.
            raise TokenError("token_signature", "its signature is wrong") from error


def check_claims(token: ParsedToken, rules: TokenRules, now: float) -> None:
    """Raise TokenError unless a token is of this issuer, for one of these audiences, and of now."""
    claims = token.claims
    if token.algorithm not in rules.algorithms:
        raise TokenError("token_algorithm", f"it is signed by {token.algorithm}, which is not accepted of its issuer")
    if rules.kinds and (token.kind or "") not in rules.kinds:
        raise TokenError("token_claims", f"its typ is not {' or '.join(filter(None, rules.kinds))}")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenError("token_issuer", "it is of another issuer")
    audience = claims.get("aud")
    meant = audience if isinstance(audience, list) else [audience]
    if not all(isinstance(one, str) for one in meant) or not set(meant) & set(rules.audiences):
        raise TokenError("token_audience", "it is for somebody else")
    check_times(claims, now, rules.skew)


def check_times(claims: dict[str, Any], now: float, skew: float) -> None:
    """Raise TokenError unless a token counts now. It must say until when."""
    times = {name: claims[name] for name in ("exp", "nbf", "iat") if name in claims}
    numbers = all(type(value) in (int, float) and abs(value) < MAX_TIME for value in times.values())
    if "exp" not in times or not numbers:
        raise TokenError("token_claims", "it does not say until when it is valid, or not as a number")
    if not times["exp"] > now - skew:
        raise TokenError("token_expired", "it has expired")
    if not max(times.get("nbf", 0), times.get("iat", 0)) <= now + skew:
        raise TokenError("token_early", "it is not valid yet; compare the clocks")


def _object(segment: str) -> dict[str, Any]:
    try:
        value = json.loads(_decode(segment).decode(), object_pairs_hook=_no_twice, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise TokenError("token_malformed", "it is not made of JSON objects in their one form") from error
    if not isinstance(value, dict):
        raise TokenError("token_malformed", "it is not made of JSON objects")
    return value


def _decode(segment: str) -> bytes:
    try:
        raw = base64.b64decode(segment + "=" * (-len(segment) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise TokenError("token_malformed", "a part of it is not base64url") from error
    # Bits that no byte needs may be anything: the same token would have several texts.
    if base64.urlsafe_b64encode(raw).rstrip(b"=") != segment.encode():
        raise TokenError("token_malformed", "a part of it is not base64url in its one form")
    return raw


def _no_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Readers differ in which of two they take, so one of them would be decided on and the other used.
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _import(entry: dict[str, Any], uses: Iterable[str]) -> _Key | None:
    from joserfc import jwk  # noqa: PLC0415  for those who use signed tokens alone

    kid, use, algorithm, operations = (entry.get(name) for name in ("kid", "use", "alg", "key_ops"))
    if not isinstance(kid, str | None) or (use is not None and use not in uses) or entry.get("kty") == "oct":
        return None
    if (operations is not None and operations != ["verify"]) or not isinstance(algorithm, str | None):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of short keys, which are refused when they are used.
            made = jwk.import_key({name: value for name, value in entry.items() if name in _PUBLIC})
        weak = isinstance(made, jwk.RSAKey) and not _is_strong(made)
        return _Key(kid, made.key_type, entry.get("crv"), algorithm, made.thumbprint(), made, weak)
    except Exception:  # noqa: BLE001  one odd key of a set is of no use, and the others are
        return None


def _is_strong(key: Any) -> bool:
    public = key.public_key
    numbers = public.public_numbers()
    sound = MIN_RSA_BITS <= public.key_size <= MAX_RSA_BITS and numbers.e > 2 and numbers.e % 2
    return bool(sound) and not is_guessable(numbers.n)


def is_guessable(modulus: int) -> bool:
    """Return whether a modulus looks like those of chips whose keys can be computed (ROCA, CVE-2017-15361)."""
    # Such a modulus is a power of 65537 by every small prime; another one is that by chance in one of 2**28 cases.
    return all(modulus % prime in powers for prime, powers in _POWERS.items())
