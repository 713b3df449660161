"""Verifies agents' tokens and certificates by the providers of the settings, and remembers what was verified."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from proxy.core.identity import ACTOR, Identity, actors_of
from proxy.core.model import Principal
from proxy.identity import spiffe, token_review
from proxy.identity.jwt import TokenError, TokenRules, UnknownKeyError, check_claims, parse_token
from proxy.identity.key_source import FileKeys, KeysUnavailableError, RemoteKeys
from proxy.identity.settings import KubernetesProvider, OidcProvider, SpiffeProvider

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cryptography import x509

    from proxy.identity.jwt import ParsedToken
    from proxy.identity.key_source import KeySource
    from proxy.identity.settings import IdentitySettings, Provider, TokenProvider

MAX_AGENT_TOKEN: Final = 16 << 10
MAX_VERIFIED: Final = 4096
MAX_REFUSED: Final = 1024
REFUSED_SECONDS: Final = 5.0
MAX_NAME: Final = 256
# Of a new token with the same claims: what differs says nothing of the agent.
_OF_THE_TOKEN: Final = frozenset({"exp", "iat", "nbf", "jti"})
_PRINTABLE: Final = re.compile(r"[!-~]+(?: [!-~]+)*")
_ACCOUNT: Final = re.compile(r"system:serviceaccount:([a-z0-9.-]{1,253}):([a-z0-9.-]{1,253})")


@dataclass(frozen=True, slots=True)
class _Verified:
    principal: Principal
    until: float
    source: KeySource
    version: int


@dataclass(frozen=True, slots=True)
class _VerifiedChain:
    principal: Principal
    until: float
    bundle: spiffe.Bundle
    version: int


@dataclass(frozen=True, slots=True)
class _Trusted:
    """A provider of tokens, with its keys."""

    provider: Provider
    keys: KeySource
    rules: TokenRules


class AgentVerifier:
    """Knows agents by tokens of other issuers, and by certificates."""

    def __init__(self, settings: IdentitySettings, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._wait = settings.wait_seconds
        self._tokens = [made for one in settings.providers if (made := _trusted(one)) is not None]
        self._bundles = {
            one.trust_domain: (one, spiffe.Bundle(one.bundle))
            for one in settings.providers
            if isinstance(one, SpiffeProvider)
        }
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()
        self._refused: OrderedDict[bytes, tuple[TokenError, float]] = OrderedDict()
        self._chains: OrderedDict[tuple[x509.Certificate, ...], _VerifiedChain] = OrderedDict()

    @property
    def uses_certificates(self) -> bool:
        """Whether clients are asked for a certificate."""
        return bool(self._bundles)

    async def follow(self) -> None:
        """Keep the issuers' keys up to date. Runs until cancelled."""
        await asyncio.gather(*(one.keys.follow() for one in self._tokens))

    def known(self, token: str) -> Principal | None:
        """Return whose token it is, where that was verified before and still counts. Waits for nothing."""
        found = self._verified.get(_digest(token))
        if found is None or not self._clock() < found.until:
            return None
        try:
            found.source.current()  # notices files that have changed, and keys that are too old
        except KeysUnavailableError:
            return None
        return found.principal if found.source.version == found.version else None

    async def verify(self, token: str) -> Principal:
        """Return whose token it is. Raises TokenError; waits only for keys, and no longer than the settings say."""
        if (known := self.known(token)) is not None:
            return known
        digest, now = _digest(token), self._clock()
        refused = self._refused.get(digest)
        if refused is not None and 0 <= now - refused[1] < REFUSED_SECONDS:
            raise refused[0].with_traceback(None)
        try:
            made = await self._verify(token)
        except TokenError as error:
            # What other keys, or the issuer's return, could change is tried again at once.
            if error.reason not in ("token_key", "issuer_unavailable"):
                _put(self._refused, digest, (error, now), MAX_REFUSED)
            raise
        _put(self._verified, digest, made, MAX_VERIFIED)
        return made.principal

    async def _verify(self, token: str) -> _Verified:
        parsed = parse_token(token, MAX_AGENT_TOKEN)
        fitting = [one for one in self._tokens if _is_of(parsed, one.provider)]
        if not fitting:
            raise TokenError("token_issuer", "no provider of the settings vouches for its issuer")
        for trusted in fitting[:-1]:
            try:
                return await self._verify_by(parsed, trusted)
            except TokenError as error:
                if error.reason != "token_audience":  # another provider may have the same issuer
                    raise
        return await self._verify_by(parsed, fitting[-1])

    async def _verify_by(self, token: ParsedToken, trusted: _Trusted) -> _Verified:
        provider, now = trusted.provider, self._clock()
        # The claims come first: they cost nothing, and a token that would be refused anyway makes nobody fetch keys.
        check_claims(token, trusted.rules, now)
        await self._check_signature(token, trusted.keys)
        name = _agent_name(token.claims, provider)
        until = float(token.claims["exp"]) + trusted.rules.skew
        if isinstance(provider, KubernetesProvider) and provider.token_review:
            await token_review.review(token.text, provider, token.claims["sub"])
            until = min(until, now + provider.review_seconds)
        identity = _identity(token.claims, provider, until)
        principal = Principal(name, authenticated=True, identity=identity)
        return _Verified(principal, until, trusted.keys, trusted.keys.version)

    async def _check_signature(self, token: ParsedToken, source: KeySource) -> None:
        try:
            source.current().verify(token)
        except (UnknownKeyError, KeysUnavailableError):
            try:
                async with asyncio.timeout(self._wait):
                    await source.renew()
            except TimeoutError:
                pass  # the fetch goes on; this call is decided by the keys that are there
            try:
                source.current().verify(token)
            except KeysUnavailableError as error:
                raise TokenError("issuer_unavailable", str(error)) from error

    def verify_certificate(self, chain: Sequence[x509.Certificate]) -> Principal:
        """Return whose certificate it is. Raises TokenError for one that is no workload's of a known trust domain."""
        key = tuple(chain)
        known = self._chains.get(key)
        if known is not None and self._clock() < known.until:
            known.bundle.store()  # notices a file that has changed
            if known.bundle.version == known.version:
                return known.principal
        made = self._verify_chain(key)
        _put(self._chains, key, made, MAX_VERIFIED)
        return made.principal

    def _verify_chain(self, chain: tuple[x509.Certificate, ...]) -> _VerifiedChain:
        if not chain:
            raise TokenError(spiffe.REASON, "there is none")
        name = spiffe.svid_name(chain[0])
        provider, bundle = self._bundles.get(spiffe.trust_domain(name) or "", (None, None))
        if provider is None or bundle is None:
            raise TokenError(spiffe.REASON, "no provider of the settings vouches for its trust domain")
        spiffe.verify_svid(chain, bundle.store(), provider.trust_domain, self._clock())
        until = min(one.not_valid_after_utc.timestamp() for one in chain)
        claims = {"sub": name, "iss": f"{spiffe.SCHEME}{provider.trust_domain}"}
        principal = Principal(name, authenticated=True, identity=_identity(claims, provider, until))
        return _VerifiedChain(principal, until, bundle, bundle.version)


def _trusted(provider: Provider) -> _Trusted | None:
    if isinstance(provider, SpiffeProvider):
        if provider.audience is None:
            return None
        rules = TokenRules(None, provider.audience, provider.algorithms, ("", "jwt", "jose"), provider.skew_seconds)
        return _Trusted(provider, FileKeys(provider.bundle, spiffe.read_jwt_keys), rules)
    kinds = [kind.lower() for kind in provider.types] if isinstance(provider, OidcProvider) else []
    rules = TokenRules(provider.issuer, provider.audience, provider.algorithms, kinds, provider.skew_seconds)
    return _Trusted(provider, _key_source(provider), rules)


def _key_source(provider: TokenProvider) -> KeySource:
    if provider.jwks_file is not None:
        return FileKeys(provider.jwks_file)
    kubernetes = provider if isinstance(provider, KubernetesProvider) else None
    return RemoteKeys(
        provider.issuer,
        jwks_url=provider.jwks_url,
        ca_file=provider.ca_file,
        headers=lambda address: token_review.bearer_for(kubernetes, address) if kubernetes else {},
        refresh=provider.refresh_seconds,
        kept=provider.keys_seconds,
    )


def _is_of(token: ParsedToken, provider: Provider) -> bool:
    if isinstance(provider, SpiffeProvider):
        subject = token.claims.get("sub")
        return isinstance(subject, str) and spiffe.trust_domain(subject) == provider.trust_domain
    return token.claims.get("iss") == provider.issuer


def _agent_name(claims: dict[str, Any], provider: Provider) -> str:
    """Return the agent's name in rules and events. It begins with the provider's, so that no two can vouch for one."""
    try:
        acting = bool(actors_of(claims))
    except ValueError as error:
        raise TokenError("token_claims", str(error)) from error
    if isinstance(provider, SpiffeProvider):
        return str(claims["sub"])  # of its trust domain, or it would be nobody's
    if isinstance(provider, KubernetesProvider):
        account = _ACCOUNT.fullmatch(str(claims.get("sub", "")))
        return _named(provider, "sub", f"{account[1]}/{account[2]}" if account else None)
    if len(provider.agent) > 1:
        values = [_value(claims, claim) for claim in provider.agent]
        # A value with the sign between them could pass for two others, and an empty one for none.
        plain = all(isinstance(one, str) and one and "/" not in one for one in values)
        return _named(provider, " and ".join(provider.agent), "/".join(map(str, values)) if plain else None)
    (claim,) = provider.agent
    # Who calls is the actor; whom it acts for is the subject (RFC 8693, 4.1).
    value = claims["act"].get(claim, claims["act"]["sub"]) if acting else _value(claims, claim)
    return _named(provider, claim, value)


def _value(claims: dict[str, Any], claim: str) -> Any:
    act = claims.get("act")
    return act.get("sub") if claim == ACTOR and isinstance(act, dict) else claims.get(claim)


def _named(provider: Provider, claim: str, value: Any) -> str:
    if not isinstance(value, str) or not _PRINTABLE.fullmatch(value) or len(value) > MAX_NAME:
        raise TokenError("token_claims", f"its claim {claim!r} names no agent")
    return f"{provider.name}:{value}"


def _identity(claims: dict[str, Any], provider: Provider, until: float) -> Identity:
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise TokenError("token_claims", "it names nobody: its claim 'sub' is missing")
    lasting = {name: value for name, value in claims.items() if name not in _OF_THE_TOKEN}
    text = json.dumps([provider.name, lasting], sort_keys=True, separators=(",", ":"))
    key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    issuer = str(claims.get("iss", ""))
    return Identity(provider.name, issuer, subject, key, lasting, provider.claims, until)


def _digest(token: str) -> bytes:
    # Not the token itself: what is remembered is not to be a list of credentials.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _put[K, V](kept: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)
