"""Names from the trail as the globs of a rule: each stands for itself alone. Pure."""

from __future__ import annotations

import re

from proxy.policy.text import fold


def as_globs(*names: str) -> list[str]:
    """Return globs that fit names, and their lax readings: an allow of `readFile` must fit `readfile` as well."""
    return list(dict.fromkeys(as_glob(one) for name in names for one in (name, fold(name).strip()) if one))


def as_glob(name: str) -> str:
    # A name may hold what a glob takes for a sign.
    return re.sub(r"([*?\[])", r"[\1]", name)
