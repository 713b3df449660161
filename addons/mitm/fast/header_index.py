"""A message's headers looked up by an index; mitmproxy converts the name of every field for every question.

Some forty questions are asked of the two heads of one call, most of them by mitmproxy itself, so it is its own
class that is given these methods (embedding.py). They answer as its own do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mitmproxy.http import Headers

    type Index = dict[bytes, list[bytes]]

_INDEX = "_interlock_index"
MAX_KEYS = 256
_KEYS: dict[str | bytes, bytes] = {}


def index(headers: Headers) -> Index:
    """Get the values of each name, in lower case. Fields never change, headers get new ones: it holds for a tuple."""
    fields = headers.fields
    kept: tuple[Any, Index] | None = headers.__dict__.get(_INDEX)
    if kept is not None and kept[0] is fields:
        return kept[1]
    made = {name.lower(): [value] for name, value in fields}
    if len(made) != len(fields):  # some stand twice
        made = {name: [] for name in made}
        for name, value in fields:
            made[name.lower()].append(value)
    if type(fields) is tuple:
        headers.__dict__[_INDEX] = fields, made
    return made


def respell(headers: Headers, drop: Collection[bytes], put: Mapping[bytes, bytes]) -> None:
    """Leave fields out, and set others, all at once; names are in lower case.

    The same as one `pop` and one assignment for each of them: what stands there keeps its place and its spelling.
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


def _bytes(text: str | bytes) -> bytes:
    if isinstance(text, str):
        return text.encode("utf-8", "surrogateescape")
    if isinstance(text, bytes):
        return text
    raise TypeError(f"expected str or bytes, but got {type(text).__name__}")


def _key(name: str | bytes) -> bytes:
    """Return what a name is looked up by; those that are asked for are few, and remembered."""
    known = _KEYS.get(name)
    if known is None:
        known = _bytes(name).lower()
        if len(_KEYS) < MAX_KEYS:
            _KEYS[name] = known
    return known


def _init(self: Headers, fields: Iterable[tuple[bytes, bytes]] = (), **headers: str | bytes) -> None:
    self.fields = tuple([tuple(field) for field in fields])  # type: ignore[misc]
    for name, value in self.fields:
        if not isinstance(name, bytes) or not isinstance(value, bytes):
            raise TypeError("Header fields must be bytes.")
    for key, text in headers.items():
        self[_bytes(key).replace(b"_", b"-")] = text


def _get_all(self: Headers, name: str | bytes) -> list[str]:
    return [value.decode("utf-8", "surrogateescape") for value in index(self).get(_key(name), ())]


def _getitem(self: Headers, name: str | bytes) -> str:
    values = index(self).get(_key(name))
    if values is None:
        raise KeyError(name)
    return b", ".join(values).decode("utf-8", "surrogateescape")


def _get(self: Headers, name: str | bytes, default: Any = None) -> Any:
    values = index(self).get(_key(name))
    return default if values is None else b", ".join(values).decode("utf-8", "surrogateescape")


def _contains(self: Headers, name: object) -> bool:
    return _key(name) in index(self)  # type: ignore[arg-type]


def _pop(self: Headers, name: str | bytes, *default: Any) -> Any:
    key = _key(name)
    values = index(self).get(key)
    if values is None:
        if default:
            return default[0]
        raise KeyError(name)
    self.fields = tuple([field for field in self.fields if field[0].lower() != key])
    return b", ".join(values).decode("utf-8", "surrogateescape")


def _set_all(self: Headers, name: str | bytes, values: Iterable[str | bytes]) -> None:
    spelled = _bytes(name)
    key = spelled.lower()
    new = iter([_bytes(value) for value in values])
    fields = []
    for field in self.fields:
        if field[0].lower() != key:
            fields.append(field)
        elif (value := next(new, None)) is not None:
            fields.append((field[0], value))
    fields += [(spelled, value) for value in new]
    self.fields = tuple(fields)


METHODS = {
    "__init__": _init,
    "__getitem__": _getitem,
    "__contains__": _contains,
    "get": _get,
    "get_all": _get_all,
    "pop": _pop,
    "set_all": _set_all,
}
"""What stands in for methods of the same names."""
