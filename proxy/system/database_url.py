"""Checks the URL of a Postgres database, and prints it without its password. Pure."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlencode, urlsplit

HIDDEN = "***"
EXAMPLE = "postgresql://USER:PASSWORD@HOST:5432/DATABASE"
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]\s]*)(:\d{1,5})?")


def check_database_url(url: str) -> str:
    """Return `url` if it names a Postgres database. Raises ValueError, without repeating what may be a password."""
    if not _fits(url):
        raise ValueError(f"write {EXAMPLE}, with special characters of the password as %XX")
    return url


def _fits(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    hosts = parts.netloc.rpartition("@")[2].split(",")
    named = all(_HOST.fullmatch(host) for host in hosts)
    return named and parts.scheme in ("postgresql", "postgres") and url.isprintable() and not parts.fragment


def shown(url: str) -> str:
    """Return `url` without its password, for logs and messages."""
    # A URL that cannot be parsed may hold its password anywhere.
    if not _fits(url):
        return HIDDEN
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    netloc = f"{name}{colon and ':' + HIDDEN}@{host}" if user else host
    # libpq also takes a password as a parameter.
    query = [(key, HIDDEN if "password" in key.lower() else value) for key, value in parse_qsl(parts.query)]
    rest = f"?{urlencode(query, safe='*/:')}" if query else ""
    return f"{parts.scheme}://{netloc}{parts.path}{rest}"
