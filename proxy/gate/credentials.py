"""Whether the placeholders in a request may be used there, and the values that take their place.

Asked once a request is decided and before it is recorded as allowed: a credential that may not go there, or whose
value cannot be had, refuses it. The values travel with the verdict, and a transport puts them in when it sends.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from proxy.core.vault import MARK, SHORTEST, CredentialUnavailableError, Filling, Place, Secret
from proxy.errors import VaultError, WireError
from proxy.gate.placeholders import (
    Spot,
    fill_body,
    fill_value,
    fits_header,
    is_text_body,
    spots,
    strings,
)
from proxy.gate.reflections import Reflections
from proxy.policy.globs import compile_globs
from proxy.policy.host_operators import compile_hosts
from proxy.policy.hosts import canonical_host
from proxy.wire.content_coding import codings, decode_body
from proxy.wire.jsonrpc import serialise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from proxy.core.model import Context, Message
    from proxy.core.vault import Credential, Vault
    from proxy.wire.mcp import Headers, RequestHead

log = structlog.get_logger("interlock.gate")

_MARK: Final = MARK.encode()
NOT_BOUND: Final = "credential_not_bound"
REVOKED: Final = "credential_revoked"
UNAVAILABLE: Final = "credential_unavailable"
MAX_NAMED: Final = 5
ALL: Final = "*"
"""Stands for every credential, where the vault itself cannot be read."""
_PLAIN_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.]+\]?")


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as credentials are judged by it: where it goes, and what it carries beside its head."""

    context: Context
    head: Headers
    tool: str | None = None
    message: Message | None = None
    """The message of MCP that it is; None for a plain request."""
    body: bytes = b""
    content_types: Sequence[str] = ()
    encodings: Sequence[str] = ()


class _Bound(NamedTuple):
    """A credential with its bindings compiled."""

    credential: Credential
    fits_host: Callable[[str], bool]
    fits_tool: Callable[[str], bool]
    fits_agent: Callable[[str], bool]

    def misfit(self, place: Place, sent: Sent) -> str | None:
        """Return what does not fit: `host`, `place`, `way`, `tool` or `agent`; None where all does."""
        credential, context = self.credential, sent.context
        if not self.fits_host(context.server):
            return "host"
        if place not in credential.places:
            return "place"
        if context.way == "claimed" or (context.way == "plain" and not credential.plain):
            return "way"
        if credential.tools and (sent.tool is None or not self.fits_tool(sent.tool)):
            return "tool"
        return "agent" if credential.agents and not self.fits_agent(context.principal.agent) else None


class _Book(NamedTuple):
    """The credentials in force, by placeholder, and what finds these in a text."""

    bound: dict[str, _Bound]
    revoked: frozenset[str]
    pattern: re.Pattern[str]

    def found(self, text: str) -> list[str]:
        return list(dict.fromkeys(self.pattern.findall(text))) if MARK in text else []


class Credentials:
    """Judges the placeholders in requests, and fetches the values for those that may be used."""

    def __init__(
        self,
        vault: Vault | None,
        body_limit: int,
        before_use: Callable[[], None] = lambda: None,
        reflections: Reflections | None = None,
    ) -> None:
        self._vault = vault
        self._reflections = reflections or Reflections(vault)
        self._limit = body_limit
        self._before_use = before_use
        self._made_of: tuple[Any, Any] = (None, None)
        self._book: _Book | None = None
        self._rebound: set[str] = set()  # placeholders whose hosts were changed while this process ran

    def may_have(self, server: str) -> bool:
        """Return whether a server may have got a value, from any worker of this proxy."""
        given = {credential.placeholder for credential, _ in self._vault.known_values()} if self._vault else ()
        if not given:
            return False
        try:
            book = self._read()
        except CredentialUnavailableError:
            book = None
        if book is None:
            return True
        # Of one that is revoked or bound to others by now, nobody knows where it went.
        bound = [None if placeholder in self._rebound else book.bound.get(placeholder) for placeholder in given]
        return any(each is None or each.fits_host(server) for each in bound)

    def may_show(self, context: Context, head: Headers, body: bytes) -> bool:
        """Return whether a request may hold a placeholder; this is all that one without costs."""
        if self._vault is None:
            return False
        if getattr(head, "is_marked", True) or _MARK in body or MARK in context.target:
            return True
        return bool(getattr(head, "encodings", ()))

    def known(self) -> frozenset[str]:
        """Return the placeholders in force and the revoked ones; none where nobody knows them."""
        try:
            book = self._read()
        except CredentialUnavailableError:
            return frozenset()
        return frozenset(book.bound) | book.revoked if book is not None else frozenset()

    async def prepare(self, sent: Sent) -> Filling | None:
        """Return what is to be put into a request; None where it holds no placeholder.

        Raises VaultError where a credential may not be used so, or its value cannot be had.
        """
        try:
            return await self._prepare(sent)
        except CredentialUnavailableError as error:
            # Where a value comes from is told to the operator, and not to the agent, which might go and look there.
            log.warning("a credential is not available", credential=error.name, why=error.why)
            raise VaultError(UNAVAILABLE, _no_value(error.name)) from None

    async def _prepare(self, sent: Sent) -> Filling | None:
        is_mcp = sent.message is not None
        marked = list(spots(sent.context.target, sent.head))
        try:
            book = self._read()
        except CredentialUnavailableError:
            # Nobody knows what is a placeholder: whatever looks like one is refused.
            texts = _texts(sent.message) if sent.message is not None else ()
            if marked or _MARK in sent.body or any(MARK in text for text in texts):
                raise
            return None
        if book is None:
            return None
        in_head = self._judge_head(book, marked, sent)
        in_body, as_text, body = self._judge_body(book, sent)
        if not (in_head or in_body or as_text):
            return None
        values = {name: await self._value(name) for name in sorted({*in_head.values(), *in_body.values()})}
        for placeholder, name in in_head.items():
            is_raw = any(spot.is_raw and placeholder in spot.text for spot in marked)
            _check(name, "a header", fits=not is_raw or fits_header(values[name].reveal()))
        head = {placeholder: values[name] for placeholder, name in in_head.items()}
        self._check_size("\n".join(spot.text for spot in marked).encode(), head)
        inside = {placeholder: values[name] for placeholder, name in in_body.items()}
        for name in in_body.values():
            _check(name, "a body", fits=_is_utf8(values[name].reveal()))
        return Filling(tuple(values), tuple(as_text), head, inside if is_mcp else {}, self._filled(sent, inside, body))

    def _judge_head(self, book: _Book, marked: Iterable[Spot], sent: Sent) -> dict[str, str]:
        found: dict[str, str] = {}
        for spot in marked:
            for placeholder in book.found(spot.text):
                if placeholder in book.revoked:
                    raise VaultError(REVOKED, f"It stands in {_said(spot.place)}.")
                bound = book.bound[placeholder]
                if (misfit := bound.misfit(spot.place, sent)) is not None:
                    raise VaultError(NOT_BOUND, explained(bound.credential, misfit, spot.place, sent))
                found[placeholder] = bound.credential.name
        return found

    def _judge_body(self, book: _Book, sent: Sent) -> tuple[dict[str, str], list[str], bytes]:
        """Return the placeholders to fill with their names, the names of those that are text, and a plain body."""
        places, texts, body = self._texts_of(sent)
        found: dict[str, str] = {}
        as_text: dict[str, None] = {}
        for placeholder in book.found(places):
            bound = book.bound.get(placeholder)
            misfit = bound.misfit(Place.BODY, sent) if bound is not None else "host"
            if bound is None or misfit in ("host", "place"):
                as_text[_name(bound)] = None
            elif misfit is None:
                found[placeholder] = bound.credential.name
            else:
                raise VaultError(NOT_BOUND, explained(bound.credential, misfit, Place.BODY, sent))
        as_text |= {_name(book.bound.get(each)): None for each in book.found(texts) if each not in found}
        return found, list(as_text), body

    def _texts_of(self, sent: Sent) -> tuple[str, str, bytes]:
        """Return what of a body is a place for values, and what is text alone; and a plain body, decoded."""
        if sent.message is not None:
            inside = strings(sent.message.params.get("arguments")) if sent.tool is not None else ()
            return _marked(inside), _marked(_texts(sent.message)), b""
        body = self._decoded(sent)
        if _MARK not in body:
            return "", "", body
        text = body.decode("utf-8", "replace")
        return (text, "", body) if is_text_body(_media_type(sent.content_types), body) else ("", text, body)

    def _decoded(self, sent: Sent) -> bytes:
        """Return a plain body without its content codings; nothing where these cannot be undone: it shows nothing."""
        applied = codings(sent.encodings)
        if not applied:
            return sent.body
        try:
            return decode_body(sent.body, applied, self._limit)
        except WireError:
            return b""

    def _filled(self, sent: Sent, values: dict[str, Secret], body: bytes) -> Secret | None:
        """Return the new body; None where nothing is put into it."""
        if not values:
            return None
        whole = body if sent.message is None else serialise(sent.message.value)
        self._check_size(whole, values)
        if sent.message is None:
            return Secret(fill_body(body, _media_type(sent.content_types), values))
        message = sent.message
        params = {**message.params, "arguments": fill_value(message.params.get("arguments"), values)}
        return Secret(serialise({**message.value, "params": params}))

    def _check_size(self, data: bytes, values: dict[str, Secret]) -> None:
        """Refuse what would be made far larger than it came: a value may be long, and a placeholder stand often."""
        added = sum(data.count(placeholder.encode()) * len(secret.reveal()) for placeholder, secret in values.items())
        if added > self._limit:
            raise VaultError(UNAVAILABLE, f"With the values in it, the request would be {added} bytes larger.")

    async def _value(self, name: str) -> Secret:
        assert self._vault is not None
        self._before_use()
        secret = await self._vault.value(name)
        if len(secret.reveal()) < SHORTEST:
            raise VaultError(UNAVAILABLE, f"The value of credential {name!r} has fewer than {SHORTEST} bytes.")
        # What finds a value in answers is made before it goes out; beside the calls of others, since it takes a while.
        if not self._reflections.knows(secret):
            await asyncio.to_thread(self._reflections.learn, secret)
        return secret

    def _read(self) -> _Book | None:
        """Return the credentials in force; None where there are none."""
        if self._vault is None:
            return None
        credentials, revoked = self._vault.credentials(), self._vault.revoked_placeholders()
        if self._made_of[0] is not credentials or self._made_of[1] is not revoked:
            before, self._book = self._book, _book(credentials, revoked) if credentials or revoked else None
            self._note_rebound(before)
            self._made_of = credentials, revoked
        return self._book

    def _note_rebound(self, before: _Book | None) -> None:
        if before is None or self._book is None:
            return
        now = self._book.bound
        self._rebound |= {
            placeholder
            for placeholder, each in before.bound.items()
            if placeholder in now and now[placeholder].credential.hosts != each.credential.hosts
        }


def _book(credentials: Iterable[Credential], revoked: frozenset[str]) -> _Book:
    bound = {each.placeholder: _compiled(each) for each in credentials}
    texts = sorted({*bound, *revoked}, key=len, reverse=True)
    return _Book(bound, revoked, re.compile("|".join(map(re.escape, texts))))


def _compiled(credential: Credential) -> _Bound:
    hosts = compile_hosts(credential.hosts)

    def fits_host(server: str) -> bool:
        written = _host(server)
        host = canonical_host(written) if _PLAIN_HOST.fullmatch(written) else None
        return host is not None and bool(host.name) and hosts.must(host)

    return _Bound(credential, fits_host, compile_globs(credential.tools), compile_globs(credential.agents))


def _host(server: str) -> str:
    """Return a server's name without its port."""
    host, colon, port = server.rpartition(":")
    return host if colon and port.isdigit() and (":" not in host or host.endswith("]")) else server


def _marked(texts: Iterable[str]) -> str:
    """Return those texts that may hold a placeholder, as one."""
    return "\n".join(text for text in texts if MARK in text)


def _name(bound: _Bound | None) -> str:
    return bound.credential.name if bound is not None else "(revoked)"


def _texts(message: Message) -> Iterable[str]:
    return strings(message.value.get("params", message.value.get("result")))


def _media_type(content_types: Sequence[str]) -> str:
    return content_types[0].partition(";")[0].strip().lower() if content_types else ""


def _no_value(name: str) -> str:
    if name == ALL:
        return "The vault cannot be read; the operator finds in the proxy's log why."
    return f"Credential {name!r} has no value now; the operator finds in the proxy's log why."


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _check(name: str, where: str, *, fits: bool) -> None:
    if not fits:
        text = f"The value of credential {name!r} has characters that cannot stand in {where}."
        raise VaultError(UNAVAILABLE, text)


def explained(credential: Credential, misfit: str, place: Place, sent: Sent) -> str:
    """Return why a credential may not be used so, and where it may; never its value."""
    context = sent.context
    here = {
        "host": f"this request goes to {context.server}",
        "place": f"here it stands in {_said(place)}",
        "way": "this request is not sent over TLS to a host whose name is proven",
        "tool": f"this is {'a call of ' + repr(sent.tool) if sent.tool else 'no call of a tool'}",
        "agent": f"this agent is {context.principal.agent!r}",
    }[misfit]
    places = " or ".join(map(_said, credential.places))
    said = [f"in {places} of requests to {_listed(credential.hosts) or 'no host yet'}"]
    said += [f"in calls of the tools {_listed(credential.tools)}"] if credential.tools else []
    said += [f"by the agents {_listed(credential.agents)}"] if credential.agents else []
    return f"Credential {credential.name!r} may be used {', '.join(said)}; {here}."


def _said(place: Place) -> str:
    return {
        Place.HEADER: "a header",
        Place.PATH: "the path",
        Place.QUERY: "the query",
        Place.BODY: "the body",
    }[place]


def _listed(names: Sequence[str]) -> str:
    more = [f"{len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
    return ", ".join([*names[:MAX_NAMED], *more])


def sent_plain(context: Context, head: Headers, body: bytes) -> Sent:
    """Return a plain request as credentials are judged by it."""
    types, encodings = getattr(head, "content_types", ()), getattr(head, "encodings", ())
    return Sent(context, head, body=body, content_types=types, encodings=encodings)


def sent_message(context: Context, head: RequestHead, message: Message, tool: str | None) -> Sent:
    """Return a message of MCP as credentials are judged by it."""
    return Sent(context, head, tool, message)
