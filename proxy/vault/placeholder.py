"""Placeholders: texts that look like a credential and open nothing. Pure.

`ilkph_NAME_` and 26 random characters; or, behind a prefix that an SDK insists on, `ilkph` and 31 random characters,
so that `ghp_` gives a text as long as GitHub's tokens. Both stand unchanged in headers, URLs, JSON and environments.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from proxy.errors import ConfigError

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,32}")
ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
NAMED_RANDOM: Final = 26
LIKE_RANDOM: Final = 31
_FORM: Final = re.compile(
    rf"ilkph(?:_[A-Za-z0-9][A-Za-z0-9._-]{{0,63}}_[A-Z2-7]{{{NAMED_RANDOM}}}|[A-Z2-7]{{{LIKE_RANDOM}}})"
)


def make(name: str, like: str | None = None) -> str:
    """Return a new placeholder for a credential. Raises ConfigError for a name or prefix that is not allowed."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"credential name {name!r} is not allowed; use 1 to 64 letters, digits, dots, dashes and underscores"
        )
    if like is None:
        return f"ilkph_{name}_{_random(NAMED_RANDOM)}"
    if not PREFIX.fullmatch(like):
        raise ConfigError(
            f"--like {like!r} is not allowed; use 1 to 32 letters, digits, dots, dashes and underscores, such as ghp_"
        )
    return f"{like}ilkph{_random(LIKE_RANDOM)}"


def find(text: str) -> tuple[str, ...]:
    """Return what has the form of a placeholder, known or not. The prefix of `like` is no part of what is returned."""
    return tuple(found[0] for found in _FORM.finditer(text))


def shortened(placeholder: str) -> str:
    """Return enough of a placeholder for a person to tell it from others."""
    return f"{placeholder[: 4 - NAMED_RANDOM]}…"


def is_placeholder(text: str) -> bool:
    """Return whether a whole text is one placeholder, with or without a prefix."""
    found = _FORM.search(text)
    return found is not None and found.end() == len(text) and (not found.start() or _is_prefix(text[: found.start()]))


def _is_prefix(text: str) -> bool:
    return PREFIX.fullmatch(text) is not None


def _random(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))
