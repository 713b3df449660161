"""The checks of `carries` that look at a request's fields: URLs to inner addresses, random data, encoded text. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxy.core.model import Finding
from proxy.policy.data_shapes import hidden_text, is_random
from proxy.policy.hosts import read_url

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

MAX_FIELDS: Final = 5000
LONGEST: Final = 1 << 16
SHORTEST: Final = 6  # of a field in which anything is found: `//10.1`
_MOST_READ: Final = 2048
_SHORTEST: Final = {"url": 24, "headers": 32, "body": 40}
_MOST_WORDS: Final = 200
_MANY_PERCENTS: Final = re.compile(r"(?:%25(?:25)*[0-9A-Fa-f]{2}){2,}")
_SLASH: Final = re.compile(r"(?i)//|%(?:25)*2f")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2}){20,}")
_PRINTED: Final = re.compile(rb"[A-Za-z0-9+/=_.:@-]{16,}")
_WORD: Final = re.compile(r"[A-Za-z0-9+/=_-]{24,}")
# `scheme://`, `scheme:\\`, `//`, with any of the signs percent-encoded, however often.
_SLASHES: Final = re.compile(
    r"(?i)(?:[a-z][a-z0-9+.-]{1,12}(?::|%(?:25)*3a))?(?:[/\\]|%(?:25)*(?:2f|5c)){2}|(?:https?|gopher|ftp):[^.]"
)
_HOST: Final = re.compile(
    r"(?i)(?:\d{1,3}(?:\.\d{1,3}){3}|0x[0-9a-f]{8}|\d{9,10}|0\d+\.[\d.]+|127\.[\d.]+|\[[0-9a-f:.]+\]|localhost"
    r"|metadata\.[a-z.]+)(?::\d+)?(?:[/?#]|$)"
)
_SCHEME: Final = re.compile(r"(?i)[a-z][a-z0-9+.-]{1,12}:/{0,3}[^\s]*")
_IN_PATH: Final = re.compile(r"(?i)/((?:https?|ftp|file|gopher)(?::|%3a).*)")
_STARTS: Final = frozenset("0123456789[/\\lLmMhH")
_ENCODED_URL: Final = 20
_LOCAL_SCHEMES: Final = frozenset(("file", "gopher", "dict", "jar", "phar", "netdoc", "expect", "ldap", "tftp"))
_FETCHED: Final = re.compile(
    r"(?i)ur[il]|link|href|host|target|dest|endpoint|callback|webhook|hook|src|source|page|site|proxy|fetch|feed|image"
    r"|addr|server|remote|domain|path|load|open|goto|upstream|backend"
)
# Where a person's browser is sent back to: on that person's own machine, often enough.
_RETURNED: Final = re.compile(
    r"(?i)^(?:redirect|return|post_?logout|success|cancel|next$|continue|origin|refer|resource)"
)
# Random by nature, and made by the server that gets it back.
_OPAQUE: Final = re.compile(
    r"(?i)cursor|page_?token|continuation|^(?:after|before|next|state|nonce|code|sig|signature|hash|etag|token_hint)$"
    r"|challenge|verifier|signature|credential$|integrity|digest|checksum|sha\d|csrf|xsrf|clid$|^_g|^utm_|assertion"
    r"|id_token|saml|fingerprint|clientdata|attestation|authenticator|security-token|cf_clearance|idempotency|boundary|trace|^if-"
    r"|^sec-|^accept|^content-|^user-agent$|^baggage$|^x-amz|^x-goog|^x-ms"
)
_IMAGES: Final = (
    "iVBOR",
    "/9j/",
    "R0lGOD",
    "UklGR",
    "JVBERi0",
    "UEsDB",
    "H4sI",
    "PHN2Zy",
    "AAAA",
    "d09G",
    "Qk0",
    "SUkq",
)


class Field(NamedTuple):
    """One text of a request: the part that it is in, where, under which name."""

    part: str
    path: str
    name: str
    text: str


def fields_of(value: dict[str, Any]) -> Iterator[Field]:
    """Return the texts of a request as `outbound_scan` reads it, no more than `MAX_FIELDS`."""
    for number, segment in enumerate(value["path"].split("/")):
        if segment:
            yield Field("url", f"path[{number}]", "", segment)
    stack = [(key, key, "", value[key]) for key in ("query", "headers", "body") if value.get(key)]
    seen = 0
    while stack and seen < MAX_FIELDS:
        top, path, name, item = stack.pop()
        seen += 1
        if isinstance(item, str):
            yield Field({"query": "url"}.get(top, top), path, name, item)
        elif isinstance(item, dict):
            stack.extend((top, f"{path}.{key}", str(key), child) for key, child in item.items())
        elif isinstance(item, list):
            stack.extend((top, f"{path}[{index}]", name, child) for index, child in enumerate(item))


def check_fields(fields: Iterable[Field], path: str, wanted: Collection[str]) -> Iterator[Finding]:
    """Return what is found of the checks that are wanted in the fields of a request with this path."""
    looks = [(name, look) for name, look in _LOOKS.items() if name in wanted]
    if not looks:
        return
    for field in (*fields, *_nested_in_path(path)):
        if SHORTEST <= len(field.text) <= LONGEST:
            yield from (finding(name, field.path) for name, look in looks if look(field))


def finding(check: str, path: str) -> Finding:
    return Finding(f"request.{check.replace('_', '-')}", path, "", maskable=False)


def _nested_in_path(path: str) -> Iterator[Field]:
    if ":" not in path and "%" not in path:
        return
    if (match := _IN_PATH.search(path)) is not None:
        yield Field("url", "path", "url", match[1])


def _is_metadata_url(field: Field) -> bool:
    return bool(_inner_classes(field) & {"metadata", "link_local"})


def _is_inner_url(field: Field) -> bool:
    found = _inner_classes(field)
    if "local_scheme" in found:
        return True
    return bool(found & {"loopback", "private", "unspecified", "metadata", "link_local"}) and not _RETURNED.search(
        field.name
    )


def _inner_classes(field: Field) -> frozenset[str]:
    """Return the classes of inner addresses that a field's URL leads to; none for prose that mentions one."""
    if field.part == "headers":
        return frozenset()
    text = field.text.strip()
    # Most fields end here. What is left is a URL, a number, or a word long enough to be a URL in base64.
    if len(text) > _MOST_READ or not (text[:1] in _STARTS or "//" in text or "%" in text or len(text) >= _ENCODED_URL):
        return frozenset()
    if any(c.isspace() for c in text):
        return frozenset()
    if not _may_be_url(field.name, text):
        text = hidden_text(text, 12) or ""
        if _SCHEME.match(text) is None:
            return frozenset()
    views = read_url(text)
    classes = frozenset(kind for host in views.hosts for found in host.classes() for kind in found)
    return classes | ({"local_scheme"} if _LOCAL_SCHEMES & set(views.schemes) else frozenset())


def _may_be_url(name: str, text: str) -> bool:
    """Return whether a text is written like a URL, or like a host under a name that asks for one."""
    if _SLASHES.match(text) is not None:
        return True
    return _FETCHED.search(name) is not None and _HOST.match(text) is not None


def _is_random_data(field: Field) -> bool:
    least = _SHORTEST[field.part]
    words = [word for word in _words(field.text) if len(word) >= least]
    if not words or _OPAQUE.search(field.name):
        return False
    return any(is_random(word.rstrip("="), least) and not _is_media(word) for word in words)


def _is_encoded_text(field: Field) -> bool:
    words = _words(field.text)
    if not (words or "%25" in field.text) or _OPAQUE.search(field.name):
        return False
    # A URL within a URL is written like this, too.
    if field.part == "url" and _MANY_PERCENTS.search(field.text) and not _SLASH.search(field.text):
        return True
    return any(map(_hides_words, words))


def _words(text: str) -> list[str]:
    if len(text) < _SHORTEST["url"] or text.startswith(("data:", "sha", "SHA", "md5")):
        return []
    return _WORD.findall(text)[:_MOST_WORDS]


def _is_media(word: str) -> bool:
    return word.startswith(_IMAGES)


def _hides_words(word: str) -> bool:
    # Bytes with a key among them: of a hash, sixteen in a row are never printable.
    if _HEX.fullmatch(word) and _PRINTED.search(bytes.fromhex(word)):
        return True
    found = hidden_text(word, 12)
    return found is not None and not _is_media(word) and (any(c in found for c in " =:@,;\n") or len(found) >= 24)


_LOOKS: Final = {
    "metadata_url": _is_metadata_url,
    "inner_url": _is_inner_url,
    "random_data": _is_random_data,
    "encoded_text": _is_encoded_text,
}


def has_login(credentials: dict[str, list[str]]) -> bool:
    """Return whether a name and a password go along."""
    for value in (text for name in ("authorization", "proxy-authorization") for text in credentials.get(name, ())):
        scheme, _, rest = value.partition(" ")
        if scheme.lower() != "basic":
            continue
        try:
            bare = rest.strip().rstrip("=")
            _, colon, _ = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return True  # a server may read it otherwise
        if colon:
            return True
    return False
