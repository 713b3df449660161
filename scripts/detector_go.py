"""Read the strings of Go sources: literals, what is put together from them, and lists and structs of them.

Only what test tables need: an expression that calls an unknown function, or an unknown name, has no value (`None`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

type Value = Any  # str, list, dict (of a struct or a map), or None for what is unknown
type Functions = Mapping[str, Callable[..., Value]]

_TOKEN: Final = re.compile(
    r"(?P<skip>\s+|//[^\n]*|/\*.*?\*/)|(?P<raw>`[^`]*`)|(?P<text>\"(?:[^\"\\\n]|\\.)*\")|(?P<rune>'(?:[^'\\\n]|\\.)+')"
    r"|(?P<number>\d[\w.]*)|(?P<name>[A-Za-z_]\w*)|(?P<sign>:=|\.\.\.|.)",
    re.DOTALL,
)
_VERB: Final = re.compile(r"%[-+#0 ]*\d*(?:\.\d+)?([a-zA-Z%])")
_END: Final = ("end", "")


def tokens(source: str) -> list[tuple[str, str]]:
    """Return the tokens of a Go source as pairs of kind and text, without comments."""
    return [(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(source) if match.lastgroup != "skip"]


def assignments(source: str, functions: Functions) -> Iterator[tuple[str, Value, dict[str, Value]]]:
    """Return each `name := value` and `name = value` from the top, with the names that have a value by then.

    A call of a function that stands alone, such as `return Validate(…)`, comes under the function's name.
    """
    known: dict[str, Value] = {}
    reader = _Reader(tokens(source), functions, known)
    while not reader.at_end():
        kind, text = reader.next()
        if kind != "name":
            continue
        if reader.peek()[1] in {":=", "="} and text != "type":
            reader.next()
            known[text] = reader.value()
            yield text, known[text], known
        elif reader.peek()[1] == "(" and text in functions:
            yield text, reader.arguments(), known


def sprintf(template: str, *values: Value) -> str | None:
    """Return what fmt.Sprintf makes of strings and numbers; None where a value is unknown."""
    rest = list(values)

    def fill(match: re.Match[str]) -> str:
        if match[1] == "%":
            return "%"
        value = rest.pop(0) if rest else ""
        if value is None:
            raise ValueError
        return json.dumps(value) if match[1] == "q" else str(value)

    try:
        return _VERB.sub(fill, template)
    except ValueError:
        return None


class _Reader:
    """Evaluates the expressions in a list of tokens."""

    def __init__(self, found: list[tuple[str, str]], functions: Functions, known: Mapping[str, Value]) -> None:
        self._tokens = found
        self._at = 0
        self._functions: Functions = {"Sprintf": sprintf, "byte": lambda text: text, "string": lambda text: text}
        self._functions = {**self._functions, **functions}
        self._known = known

    def at_end(self) -> bool:
        return self._at >= len(self._tokens)

    def peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def next(self) -> tuple[str, str]:
        token = self.peek()
        self._at += 1
        return token

    def value(self) -> Value:
        """Return the value of the expression that comes next: terms joined by `+`."""
        result = self._term()
        while self.peek()[1] == "+":
            self.next()
            right = self._term()
            result = result + right if isinstance(result, str) and isinstance(right, str) else None
        return result

    def _term(self) -> Value:
        kind, text = self.next()
        if kind == "raw":
            return text[1:-1]
        if kind == "text":
            return _unquoted(text)
        if kind == "name":
            return self._named(text)
        if text == "{":
            return self._items("}")
        if text == "[":
            return self._typed()
        if text == "(":
            result = self.value()
            self._close(")")
            return result
        return self._term() if text in {"&", "*"} else None

    def _typed(self) -> Value:
        """Return a literal that begins with its type, as in `[]string{…}` or `[]byte(…)`."""
        self._close("]")
        while self.peek()[0] == "name" or self.peek()[1] in {".", "*"}:
            name = self.next()[1]
            if name == "struct" and self.peek()[1] == "{":
                self.next()
                self._close("}")
            if name == "map" and self.peek()[1] == "[":
                self.next()
                self._close("]")
        return self._after_type()

    def _after_type(self) -> Value:
        if self.peek()[1] == "{":
            self.next()
            return self._items("}")
        if self.peek()[1] == "(":
            found = self.arguments()
            return found[0] if found else None
        return None

    def _named(self, name: str) -> Value:
        while self.peek()[1] == "." and self._tokens[self._at + 1 : self._at + 2][0][0] == "name":
            self.next()
            name = self.next()[1]
        if name == "map" and self.peek()[1] == "[":
            self.next()
            return self._typed()
        if self.peek()[1] == "(":
            found = self.arguments()
            function = self._functions.get(name)
            return function(*found) if function is not None else None
        if self.peek()[1] == "{" and name[:1].isupper():
            self.next()
            return self._items("}")
        return self._known.get(name)

    def arguments(self) -> list[Value]:
        """Return the values between the brackets of a call; a list followed by `...` counts as its items."""
        self.next()
        return self._list(")")

    def _items(self, closing: str) -> Value:
        """Return the dict of a struct or map literal, or the list of another."""
        found = self._list(closing)
        if found and all(isinstance(item, _Member) for item in found):
            return {item.key: item.value for item in found}
        return [item for item in found if not isinstance(item, _Member)]

    def _list(self, closing: str) -> list[Value]:
        found: list[Value] = []
        while not self.at_end() and self.peek()[1] != closing:
            before = self._at
            is_name = self.peek()[0] == "name" and self._tokens[self._at + 1 : self._at + 2] == [("sign", ":")]
            key = self.next()[1] if is_name else self.value()
            if self.peek()[1] == ":":
                self.next()
                found.append(_Member(key, self.value()))
            elif self.peek()[1] == "...":
                self.next()
                found += key if isinstance(key, list) else []
            else:
                found.append(key)
            self._skip_to(closing)
            if self._at == before:
                self.next()
        self.next()
        return found

    def _skip_to(self, closing: str) -> None:
        """Pass what the expression before left unread, up to and with the next comma."""
        depth = 0
        while not self.at_end():
            text = self.peek()[1]
            if not depth and text == closing:
                return
            depth += (text in {"(", "[", "{"}) - (text in {")", "]", "}"})
            if depth < 0:
                return
            self.next()
            if not depth and text == ",":
                return

    def _close(self, closing: str) -> None:
        depth = 0
        while not self.at_end():
            text = self.next()[1]
            if not depth and text == closing:
                return
            depth += (text in {"(", "[", "{"}) - (text in {")", "]", "}"})


class _Member:
    """One `key: value` of a literal."""

    def __init__(self, key: Value, value: Value) -> None:
        self.key = key
        self.value = value


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        return text[1:-1].encode().decode("unicode_escape", "replace")
