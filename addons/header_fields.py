"""Header fields read through an index, and replaced in one step.

A gate asks some forty questions of the two heads of one call; mitmproxy lowers the name of every field for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mitmproxy.http import Headers

    type Index = dict[bytes, list[bytes]]

_INDEX = "_interlock_index"


def index(headers: Headers) -> Index:
    """Return the values of each name, in lower case."""
    fields = headers.fields
    # Headers never change their tuple of fields, they get another one. So an index holds as long as the tuple is the
    # same object; comparing by value would cost what the index saves.
    cached: tuple[Any, Index] | None = headers.__dict__.get(_INDEX)
    if cached is not None and cached[0] is fields:
        return cached[1]
    made = {name.lower(): [value] for name, value in fields}
    if len(made) != len(fields):  # a name occurs twice: all its values count, or a second Content-Length would hide
        made = {name: [] for name in made}
        for name, value in fields:
            made[name.lower()].append(value)
    if type(fields) is tuple:  # a list could change under the index
        headers.__dict__[_INDEX] = fields, made
    return made


def replace_fields(headers: Headers, drop: Collection[bytes], put: Mapping[bytes, bytes]) -> None:
    """Drop some fields and set others; names are in lower case.

    The same as one `pop` and one assignment for each: a field that is set keeps its position and its capitals.
    """
    left = dict(put)
    fields = []
    for field in headers.fields:
        key = field[0].lower()
        if key in put:
            if key in left:
                fields.append((field[0], left.pop(key)))
        elif key not in drop:
            fields.append(field)
    headers.fields = (*fields, *left.items())


def drop_fields(headers: Headers, names: Collection[bytes]) -> None:
    """Drop the fields of these names, in lower case. Where there are none, the fields stay the same object."""
    if not index(headers).keys().isdisjoint(names):
        replace_fields(headers, names, {})
