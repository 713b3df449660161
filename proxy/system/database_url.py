"""Checks the URL of a Postgres database, and prints it without its password. Pure."""

from __future__ import annotations

import ipaddress
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


def split_system_roots(url: str) -> tuple[str, bool]:
    """Return `url` without `sslrootcert=system`, and whether it was there. Raises ValueError where it checks no name.

    As in libpq: the system's CAs vouch for a name, so a weaker `sslmode` than verify-full is a mistake.
    """
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    if ("sslrootcert", "system") not in query:
        return url, False
    if dict(query).get("sslmode", "verify-full") != "verify-full":
        raise ValueError("sslrootcert=system needs sslmode=verify-full; leave sslmode out")
    rest = [(key, value) for key, value in query if key not in ("sslrootcert", "sslmode")]
    return parts._replace(query=urlencode(rest, safe="/:")).geturl(), True


def unprotected_host(url: str) -> str | None:
    """Return the remote host that `url` leads to over a connection that may be in plain text, or to anybody."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if query.get("sslmode") in ("require", "verify-ca", "verify-full") or query.get("sslrootcert") == "system":
        return None
    hosts = [host for host in (query.get("host") or parts.netloc.rpartition("@")[2]).split(",") if host]
    return next((host for host in hosts if not _is_local(host)), None)


def _is_local(host: str) -> bool:
    if host.startswith("/"):
        return True  # a unix socket
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


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
