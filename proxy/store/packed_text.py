"""Text as every database takes it. Names and reasons may hold what came over the wire, NUL too."""

from __future__ import annotations

import json
import re

_MARK = "\x01"
# What no database takes as text: NUL and halves of surrogate pairs. What begins with the mark itself is packed too:
# else it would be read back as something packed.
_UNFIT = re.compile("^\x01|[\x00\ud800-\udfff]")


def pack(text: str) -> str:
    """Return `text` in a form that every database takes: almost always itself, and never that of another text."""
    return _MARK + json.dumps(text) if _UNFIT.search(text) else text


def unpack(text: str) -> str:
    return str(json.loads(text[1:])) if text.startswith(_MARK) else text
