"""Log lines for people: a decision is one line that fits the terminal; text from outside acts on no terminal. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxy.system.terminal_text import display_width, fit_widths, padded, printable, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

DECIDED = "decided"
_GAP = "  "
_COLOURS = {
    "deny": "31",
    "propose": "33",
    "allow": "32",
    "warning": "33",
    "error": "31",
    "critical": "31",
    "exception": "31",
}
# How wide agent, server and tool are at least, so that lines that come one by one still look like columns.
_COLUMNS = (7, 14, 16, 0)
_OWN = frozenset({"event", "level", "timestamp", "logger", "worker", "exception", "stack"})
_TIME, _SECONDS = slice(0, 23), slice(11, 19)


def format_line(line: Mapping[str, Any], width: int | None = None, *, colours: bool = False) -> str:
    """Return a log line as text. `width` is the terminal's; None: there is none, and every value is written out."""
    stamp = str(line.get("timestamp", ""))
    time = stamp[_SECONDS] if width is not None else stamp[_TIME].replace("T", " ")
    if line.get("event") == DECIDED and "decision" in line:
        return _decision(line, time, width, colours=colours)
    level = printable(line.get("level", ""))
    said = [f"{name}={_value(value)}" for name, value in line.items() if name not in _OWN]
    text = f"{time} {_coloured(level, padded(level, 7), colours=colours)}  {printable(line.get('event'))}"
    text = _GAP.join([text, " ".join(said)]) if said else text
    below = [str(line[name]) for name in ("stack", "exception") if line.get(name)]
    return "\n".join([text, *("\n".join(map(printable, each.splitlines())) for each in below)])


def _decision(line: Mapping[str, Any], time: str, width: int | None, *, colours: bool) -> str:
    """Return time, decision, agent, server, tool and rule; the rest where there is room for it."""
    decision = printable(line["decision"])
    head = f"{time} {_coloured(decision, padded(decision, 7), colours=colours)}"
    why = line.get("rule") or line.get("reason")
    cells = [printable(each) for each in (line.get("agent"), line.get("server"), _what(line), why)]
    more = [f"{line.get('ms') or 0:.1f} ms", printable(line.get("call_id"))]
    if width is None:
        return _GAP.join([head, *cells, *([printable(line.get("reason"))] if line.get("rule") else []), *more])
    room = width - len(time) - 1 - max(7, display_width(decision))
    return head + _fitted(cells, more, room)


def _what(line: Mapping[str, Any]) -> Any:
    return line.get("tool") or line.get("method")


def _fitted(cells: list[str], more: list[str], room: int) -> str:
    natural = list(map(display_width, cells))
    columns = [max(pair) for pair in zip(_COLUMNS, natural, strict=True)]
    room -= len(_GAP) * len(cells)
    widths = columns if sum(columns) <= room else fit_widths(natural, room)
    text = "".join(_GAP + padded(shorten(cell, width), width) for cell, width in zip(cells, widths, strict=True))
    room -= sum(widths)
    for each in more:
        room -= len(_GAP) + len(each)
        if room < 0:
            break
        text += _GAP + each
    return text.rstrip()


def _value(value: Any) -> str:
    text = printable(value if isinstance(value, str) else repr(value))
    return repr(text) if not text or " " in text else text


def _coloured(key: str, text: str, *, colours: bool) -> str:
    colour = _COLOURS.get(key)
    return f"\x1b[{colour}m{text}\x1b[0m" if colours and colour else text
