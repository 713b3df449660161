"""Tools pinned as they were first seen: what a page of a tool list changes. Pure, no I/O.

The first list of a server, over all its pages, is taken on trust. From then on a tool that is new, that says anything
else, or that has come back under another name is a departure, and stays one until somebody approves.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from proxy.core.model import JsonObject, frozen
from proxy.errors import PinsUnavailableError
from proxy.gate.definition_drift import departures
from proxy.gate.tool_descriptions import find_hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


MAX_TOOLS: Final = 2000
MAX_CARDS: Final = 200
MAX_DEFINITION: Final = 32 << 10
FIRST_LIST_SECONDS: Final = 300.0
INSTRUCTIONS: Final = "(instructions)"
"""Stands in place of a tool's name for what a server tells every client to do."""


@frozen()
class ToolPrint:
    """What a server says of one tool, as digests: of the whole, without the name, and field by field.

    `hidden` tells where invisible characters stand. `definition` is what was
    said itself, where it is not too long to keep.
    """

    digest: str
    body: str
    fields: Mapping[str, str]
    hidden: tuple[str, ...] = ()
    definition: JsonObject | None = None


@frozen()
class Pin:
    """One tool as last seen and as approved, if ever; `drifted` from the first departure until somebody approves."""

    seen: ToolPrint
    approved: ToolPrint | None
    drifted: bool
    since: float

    @property
    def stands(self) -> bool:
        """Whether the tool is as approved, and has been all along."""
        return self.approved is not None and not self.drifted

    @property
    def state(self) -> Literal["pinned", "edited", "new", "changed"]:
        """What a person should know: an edited tool differs from the approved one in nothing that matters."""
        if self.stands:
            same = self.approved is not None and self.approved.digest == self.seen.digest
            return "pinned" if same else "edited"
        return "new" if self.approved is None else "changed"


@frozen()
class ServerPins:
    """A server's pinned tools; `listing` while its first list is coming; `approvals` counts the approvals.

    `listed` is False before the first list, and `instructions` None before the first handshake.
    """

    first_seen: float
    listing: bool
    tools: Mapping[str, Pin]
    approvals: int = 0
    instructions: Pin | None = None
    listed: bool = True
    cards: Mapping[str, Pin] = field(default_factory=dict[str, "Pin"])
    """Agent cards, by the path at which they were found."""


class PinStore(Protocol):
    """Keeps pins. Safe for several processes; what cannot be read or written raises PinsUnavailableError."""

    def read(self, server: str) -> ServerPins | None:
        """Return a server's pins; None where it was never seen."""

    def update(self, server: str, change: Callable[[ServerPins | None], ServerPins | None]) -> ServerPins | None:
        """Replace a server's pins by what `change`, which is pure, makes of them; return the new ones.

        Nobody else's update comes between. None forgets the server; giving the same object back changes nothing.
        """

    def servers(self) -> Sequence[str]:
        """Return the servers that have pins, by name."""


@frozen()
class Page:
    """One page of a tool list: named tools in order, and its place among the pages."""

    tools: Sequence[tuple[str, ToolPrint]]
    continued: bool = False  # it was requested with a cursor
    last: bool = True  # no further page was announced


@frozen()
class ToolChange:
    """What one tool of a page brings that was not known before."""

    tool: str
    what: Literal["pinned", "new", "changed", "renamed", "edited"]
    fields: tuple[str, ...] = ()
    former: str | None = None
    departures: tuple[str, ...] = ()


def print_tool(tool: JsonObject) -> ToolPrint:
    """Return the print of a whole tool, whatever the order of its keys. Raises RecursionError if nested too deep."""
    whole = _canonical(tool)
    return ToolPrint(
        digest=_digest(whole),
        body=_digest(_canonical({key: value for key, value in tool.items() if key != "name"})),
        fields={key: _digest(_canonical(value)) for key, value in tool.items()},
        hidden=find_hidden(tool),
        definition=tool if len(whole) <= MAX_DEFINITION else None,
    )


def changed_fields(before: ToolPrint, after: ToolPrint) -> tuple[str, ...]:
    """Name the top-level fields in which two prints differ."""
    names = sorted({*before.fields, *after.fields})
    return tuple(name for name in names if before.fields.get(name) != after.fields.get(name))


def take_page(
    known: ServerPins | None, page: Page, *, adopt: bool, now: float, tolerant: bool = False
) -> tuple[ServerPins, tuple[ToolChange, ...]]:
    """Return the pins after `page`, and what was new in it. A tool that a page lacks is not gone.

    `adopt` takes everything as it comes, `tolerant` what changes no meaning. The same object is given back where
    nothing changed. Raises PinsUnavailableError past MAX_TOOLS tools.
    """
    first = known is None or not known.listed or _continues_first(known, page, now)
    pins = dict(known.tools) if known else {}
    changes: list[ToolChange] = []
    for name, seen in page.tools:
        change = _take(pins, name, seen, trusted=adopt or (first and name not in pins), now=now, tolerant=tolerant)
        changes += [change] if change else []
    if len(pins) > MAX_TOOLS:
        raise PinsUnavailableError(f"a server lists more than {MAX_TOOLS} tools, which is past what is pinned")
    if known is None or not known.listed:
        instructions, approvals = (known.instructions, known.approvals) if known else (None, 0)
        cards = known.cards if known else {}
        return ServerPins(now, not page.last, pins, approvals, instructions, cards=cards), tuple(changes)
    listing = not page.last if first else known.listing
    same = len(pins) == len(known.tools) and all(pins[name] is pin for name, pin in known.tools.items())
    if listing == known.listing and same:
        return known, ()
    return replace(known, listing=listing, tools=pins), tuple(changes)


def _continues_first(known: ServerPins, page: Page, now: float) -> bool:
    return page.continued and known.listing and now - known.first_seen < FIRST_LIST_SECONDS


def take_instructions(
    known: ServerPins | None, seen: ToolPrint, *, adopt: bool, now: float, tolerant: bool = False
) -> tuple[ServerPins, ToolChange | None]:
    """Return the pins after a handshake in which a server gave instructions, or none, and what was new in that."""
    before = known.instructions if known else None
    pins = {INSTRUCTIONS: before} if before else {}
    change = _take(pins, INSTRUCTIONS, seen, trusted=adopt or before is None, now=now, tolerant=tolerant)
    if known is None:
        return ServerPins(now, listing=False, tools={}, instructions=pins[INSTRUCTIONS], listed=False), change
    same = pins[INSTRUCTIONS] is before
    return known if same else replace(known, instructions=pins[INSTRUCTIONS]), change


def take_card(
    known: ServerPins | None, name: str, seen: ToolPrint, *, adopt: bool, now: float, tolerant: bool = False
) -> tuple[ServerPins, ToolChange | None]:
    """Return the pins after an agent card was seen, and what was new in it. Raises PinsUnavailableError."""
    cards = dict(known.cards) if known else {}
    before = cards.get(name)
    change = _take(cards, name, seen, trusted=adopt or before is None, now=now, tolerant=tolerant)
    if len(cards) > MAX_CARDS:
        raise PinsUnavailableError(f"a server shows more than {MAX_CARDS} agent cards, which is past what is pinned")
    if known is None:
        return ServerPins(now, listing=False, tools={}, listed=False, cards=cards), change
    return known if cards.get(name) is before else replace(known, cards=cards), change


def _take(
    pins: dict[str, Pin], name: str, seen: ToolPrint, *, trusted: bool, now: float, tolerant: bool = False
) -> ToolChange | None:
    """Put one tool of a page into `pins`; return what was new about it."""
    known = pins.get(name)
    if trusted:
        was_seen = known is not None and known.seen.digest == seen.digest
        if known is None or not was_seen or not known.stands:
            pins[name] = Pin(seen, seen, drifted=False, since=now)
        return None if was_seen else ToolChange(name, "pinned")
    if known is None:
        # The name under which the same tool was known.
        bodies = ((each, (pin.seen.body, pin.approved.body if pin.approved else None)) for each, pin in pins.items())
        former = next((each for each, known_as in bodies if seen.body in known_as), None)
        pins[name] = Pin(seen, None, drifted=True, since=now)
        return ToolChange(name, "renamed" if former else "new", tuple(sorted(seen.fields)), former)
    if known.seen.digest == seen.digest:
        return None
    if known.approved is not None and known.approved.digest == seen.digest:
        pins[name] = replace(known, seen=seen, since=now)
        return None
    fields = changed_fields(known.approved or known.seen, seen)
    approved = known.approved.definition if known.approved else None
    found = departures(approved, seen.definition) if tolerant and not seen.hidden else ("",)
    pins[name] = replace(known, seen=seen, drifted=known.drifted or bool(found), since=now)
    return ToolChange(name, "changed" if found else "edited", fields, departures=found if tolerant else ())


def approve(
    known: ServerPins | None, tool: str | None, now: float, *, instructions: bool = False, card: str | None = None
) -> ServerPins | None:
    """Approve a tool, the instructions, a card, or where none is named all of a server's, as last seen."""
    if known is None:
        return None
    everything = tool is None and not instructions and card is None
    cards = {name: _approved(pin, now) if everything or name == card else pin for name, pin in known.cards.items()}
    pins = {name: _approved(pin, now) if everything or name == tool else pin for name, pin in known.tools.items()}
    said = known.instructions
    if said is not None and (everything or instructions):
        said = _approved(said, now)
    return replace(known, tools=pins, instructions=said, cards=cards, listing=False, approvals=known.approvals + 1)


def _approved(pin: Pin, now: float) -> Pin:
    return pin if pin.stands and pin.approved == pin.seen else Pin(pin.seen, pin.seen, drifted=False, since=now)


def to_json(pins: ServerPins) -> JsonObject:
    """Return pins as plain JSON values."""
    return {
        "first_seen": pins.first_seen,
        "listing": pins.listing,
        "approvals": pins.approvals,
        "tools": {name: _pin_to_json(pin) for name, pin in pins.tools.items()},
        "instructions": _pin_to_json(pins.instructions) if pins.instructions else None,
        "listed": pins.listed,
        "cards": {name: _pin_to_json(pin) for name, pin in pins.cards.items()},
    }


def from_json(value: Any) -> ServerPins:
    """Read what `to_json` gave. Raises KeyError, TypeError, AttributeError or ValueError for anything else."""
    return ServerPins(
        first_seen=float(value["first_seen"]),
        listing=value["listing"] is True,
        approvals=int(value["approvals"]),
        tools={str(name): _pin_from_json(pin) for name, pin in value["tools"].items()},
        # A file of an earlier version has neither: its server's instructions are pinned at the next handshake.
        instructions=_pin_from_json(said) if (said := value.get("instructions")) else None,
        listed=value.get("listed") is not False,
        cards={str(name): _pin_from_json(pin) for name, pin in (value.get("cards") or {}).items()},
    )


def _pin_to_json(pin: Pin) -> JsonObject:
    same = pin.approved == pin.seen
    return {
        "since": pin.since,
        "drifted": pin.drifted,
        "seen": _print_to_json(pin.seen),
        "approved": "seen" if same else _print_to_json(pin.approved) if pin.approved else None,
    }


def _pin_from_json(value: Any) -> Pin:
    seen, approved = _print_from_json(value["seen"]), value["approved"]
    was = seen if approved == "seen" else None if approved is None else _print_from_json(approved)
    return Pin(seen, was, drifted=value["drifted"] is not False, since=float(value["since"]))


def _print_to_json(made: ToolPrint) -> JsonObject:
    plain = {"digest": made.digest, "body": made.body, "definition": made.definition}
    return {**plain, "fields": dict(made.fields), "hidden": list(made.hidden)}


def _print_from_json(value: Any) -> ToolPrint:
    return ToolPrint(
        str(value["digest"]),
        str(value["body"]),
        {str(name): str(digest) for name, digest in value["fields"].items()},
        tuple(str(place) for place in value["hidden"]),
        value["definition"],
    )


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
