"""The tools an agent sees and may call: what policy could allow, as pinned, described without tricks.

Raises where the pins cannot be read or written; the caller then shows nothing and refuses the call.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from proxy.core.model import UNSAID, Call, Context, Governed, Hints, JsonObject, PinRules
from proxy.gate.schema_check import still_fits
from proxy.gate.task_calls import offer_task, offer_tasks
from proxy.gate.tool_descriptions import find_hidden, find_phrases
from proxy.gate.tool_pins import (
    INSTRUCTIONS,
    Page,
    Pin,
    PinStore,
    ServerPins,
    ToolChange,
    ToolPrint,
    print_tool,
    take_card,
    take_instructions,
    take_page,
)
from proxy.twophase.listing import (
    PHASE_SUFFIXES,
    Names,
    Phase,
    commit_tool,
    is_addressed,
    phase_names,
    propose_tool,
    read_name,
)
from proxy.wire.mcp import MODERN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from proxy.core.interfaces import Policy
    from proxy.gate.incoming import Incoming

TOOLS_LIST: Final = "tools/list"
NOT_PINNED: Final = "tool_not_pinned"
HIDDEN: Final = "hidden_characters"
INJECTED: Final = "injected_instructions"
MAX_FOUND: Final = 10_000
# The lists whose entries are described to a model, beside tools; and the answers that may bring instructions.
ENTRIES: Final = {
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
HANDSHAKES: Final = frozenset(("initialize", "server/discover"))
# A list depends on the agent and on a policy that may change, so no cache may hold it or give it to another.
FRESH: Final = {"ttlMs": 0, "cacheScope": "private"}


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a tool may not be called, whatever its arguments."""

    reason: str
    why: str


@dataclass(frozen=True, slots=True)
class ToolFinding:
    """Something that an operator should know of a listed tool; `enforced` where it was hidden for it."""

    kind: Literal["pin_changed", "hidden_characters", "injection_phrase"]
    tool: str
    enforced: bool = False
    reason: str | None = None
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])


type Listed = list[tuple[JsonObject, ToolPrint]]


class ToolCatalog:
    """Filters tool lists, and objects to calls of tools that would not be in them."""

    def __init__(self, *, policy: Callable[[], Policy], pins: PinStore, clock: Callable[[], float] = time.time) -> None:
        self._policy = policy
        self._pins = pins
        self._clock = clock
        self.incoming: Incoming | None = None  # screens what tools say, where policy asks for it
        self._found: set[str] = set()  # entries with hidden characters that were recorded

    def look_up(self, context: Context, tool: str, rules: PinRules) -> tuple[Hints, Objection | None]:
        """Return what a server last said of a tool's nature, and why it may not be called, if not by policy."""
        # One look at the pins for both: each costs a look at a file.
        known = self._pins.read(context.server)
        pin = known.tools.get(tool) if known else None
        definition = pin.seen.definition if pin else None
        hints = Hints.read(definition.get("annotations")) if definition else UNSAID
        # There are two objections; where neither can hold, as for nearly every call, none is looked for.
        possible = rules.mode == "enforce" or (pin is not None and pin.seen.hidden)
        objection = _objection(pin, rules) if possible else None
        return hints, objection or self._screen_call(context, tool, pin)

    def _screen_call(self, context: Context, tool: str, pin: Pin | None) -> Objection | None:
        if self.incoming is None or pin is None:
            return None
        rule = self.incoming.withholds_tool(context, tool, pin.seen)
        if rule is None:
            return None
        return Objection(INJECTED, f"Rule {rule}: the tool's definition speaks to the model, or cannot be examined.")

    def hints(self, server: str, tool: str) -> Hints:
        """Return what a server last said of a tool's nature."""
        definition = self._definition(server, tool)
        return Hints.read(definition.get("annotations")) if definition else UNSAID

    def description(self, server: str, tool: str) -> str | None:
        """Return what a server last said that a tool does."""
        said = (self._definition(server, tool) or {}).get("description")
        return said if isinstance(said, str) else None

    def breaks(self, call: Call, part: Literal["inputSchema", "outputSchema"], before: Any, after: Any) -> bool:
        """Return whether masking made of `before` what the tool's schema, as last listed, may not take.

        They are the `params` or the `result` of a call. Where no schema is known nothing breaks,
        and a tool that failed owes its schema nothing.
        """
        if not isinstance(before, dict) or not isinstance(after, dict):
            return False
        place = "arguments" if part == "inputSchema" else "structuredContent"
        failed = place == "structuredContent" and after.get("isError") is True
        if call.tool is None or failed or before.get(place) is after.get(place):
            return False
        schema = (self._definition(call.server, call.tool) or {}).get(part, True)
        return not still_fits(schema, before.get(place), after.get(place))

    def _definition(self, server: str, tool: str) -> JsonObject | None:
        known = self._pins.read(server)
        pin = known.tools.get(tool) if known else None
        return pin.seen.definition if pin else None

    def phase_of(self, context: Context, name: str, arguments: JsonObject | None) -> tuple[Phase, str] | None:
        """Return which phase of which two-phase tool a call is; None where it is of a tool itself."""
        # Addressed to a phase it is one, even if no rule governs the tool any more: no token must reach the server.
        if not name.endswith(PHASE_SUFFIXES):
            return None
        known = self._pins.read(context.server)
        tools = known.tools if known else {}
        addressed = is_addressed(arguments)
        return read_name(name, tools, lambda tool: addressed or self._governs(context, tool) != "never")

    def names(self, context: Context, tool: str) -> Names:
        """Return the names of a two-phase tool's phases."""
        known = self._pins.read(context.server)
        return phase_names(tool, known.tools if known else {})

    def _governs(self, context: Context, tool: str) -> Governed:
        caller = context.principal
        call = Call("tools/call", context.server, caller.agent, tool, identity=caller.identity)
        return self._policy().governs(replace(call, hints=self.hints(context.server, tool)))

    def show(
        self, context: Context, result: JsonObject, *, continued: bool
    ) -> tuple[JsonObject, tuple[ToolFinding, ...]]:
        """Return a tools/list result as the agent may see it, and findings; `continued` if requested with a cursor."""
        if "tools" not in result:
            return result, ()
        policy, server = self._policy(), context.server
        listed = list(_readable(result["tools"]))
        page = Page([(tool["name"], made) for tool, made in listed], continued, result.get("nextCursor") is None)
        pins, changes = self._take(server, page, policy.pins)
        taken = {*(pins.tools if pins else ()), *(tool["name"] for tool, _ in listed)}
        screened = [
            seen
            for tool, made in listed
            if _is_in_order(tool["name"], made, pins, policy.pins)
            and (seen := self._screen(context, tool, made)) is not None
        ]
        shown = [
            face
            for tool in screened
            for face in _faces(tool, policy, _asked(context, tool["name"], tool.get("annotations")), taken)
        ]
        fresh = FRESH if context.revision == MODERN or not {"resultType", *FRESH}.isdisjoint(result) else {}
        return {**result, "tools": shown, **fresh}, tuple(_findings(changes, listed, policy.pins))

    def _screen(self, context: Context, tool: JsonObject, made: ToolPrint) -> JsonObject | None:
        return tool if self.incoming is None else self.incoming.screen_tool(context, tool, made)

    def show_instructions(self, context: Context, result: JsonObject) -> tuple[JsonObject, tuple[ToolFinding, ...]]:
        """Return the result of a handshake as the agent may see it: without instructions that it may not."""
        said = {"instructions": result["instructions"]} if result.get("instructions") is not None else {}
        rules, made = self._policy().pins, print_tool(said)
        tolerant = rules.drift == "tolerant"
        change: ToolChange | None = None

        def take(known: ServerPins | None) -> ServerPins:
            nonlocal change
            pins, change = take_instructions(
                known, made, adopt=rules.mode == "off", now=self._clock(), tolerant=tolerant
            )
            return pins

        pins = self._pins.update(context.server, take)
        pin = pins.instructions if pins else None
        passes = not made.hidden or rules.hidden_characters != "enforce"
        passes = passes and (rules.mode != "enforce" or (pin is not None and pin.stands))
        listed: Listed = [({"name": INSTRUCTIONS, **said}, made)]
        findings = tuple(_findings((change,) if change else (), listed, rules))
        result = offer_tasks(result) if self._policy().offers_tasks else result
        return result if passes or not said else without_instructions(result), findings

    def take_card(self, context: Context, name: str, card: JsonObject) -> tuple[bool, tuple[ToolFinding, ...]]:
        """Pin an agent card; return whether it may pass, and what was found. Raises PinsUnavailableError."""
        rules, made = self._policy().pins, print_tool(card)
        change: ToolChange | None = None

        def take(known: ServerPins | None) -> ServerPins:
            nonlocal change
            adopt, tolerant = rules.mode == "off", rules.drift == "tolerant"
            pins, change = take_card(known, name, made, adopt=adopt, now=self._clock(), tolerant=tolerant)
            return pins

        pins = self._pins.update(context.server, take)
        pin = pins.cards.get(name) if pins else None
        passes = not made.hidden or rules.hidden_characters != "enforce"
        passes = passes and (rules.mode != "enforce" or (pin is not None and pin.stands))
        listed: Listed = [({**card, "name": name}, made)]
        return passes, tuple(_findings((change,) if change else (), listed, rules))

    def show_entries(
        self, context: Context, key: str, result: JsonObject
    ) -> tuple[JsonObject, tuple[ToolFinding, ...]]:
        """Return a list of prompts or resources without the entries that invisible characters stand in."""
        entries = result.get(key)
        if not isinstance(entries, list):
            return result, ()
        hidden = {at: places for at, entry in enumerate(entries) if (places := find_hidden(entry))}
        if not hidden:
            return result, ()
        enforced = self._policy().pins.hidden_characters == "enforce"
        new = [at for at in hidden if self._is_new(context.server, key, entries[at])]
        findings = tuple(
            ToolFinding(HIDDEN, _entry_name(entries[at]), enforced, HIDDEN, {"places": list(hidden[at]), "list": key})
            for at in new
        )
        shown = [entry for at, entry in enumerate(entries) if at not in hidden]
        return ({**result, key: shown} if enforced else result), findings

    def _is_new(self, server: str, key: str, entry: Any) -> bool:
        """Return whether an entry was not found before, so that each is recorded once."""
        try:
            found = f"{server} {key} {print_tool({'entry': entry}).digest}"
        except RecursionError:
            return True
        if found in self._found:
            return False
        if len(self._found) >= MAX_FOUND:
            self._found.clear()
        self._found.add(found)
        return True

    def _take(self, server: str, page: Page, rules: PinRules) -> tuple[ServerPins | None, tuple[ToolChange, ...]]:
        changes: tuple[ToolChange, ...] = ()

        def change(known: ServerPins | None) -> ServerPins:
            nonlocal changes
            tolerant = rules.drift == "tolerant"
            pins, changes = take_page(known, page, adopt=rules.mode == "off", now=self._clock(), tolerant=tolerant)
            return pins

        return self._pins.update(server, change), changes


def _objection(pin: Pin | None, rules: PinRules) -> Objection | None:
    """Say why a tool of this pin may not be called."""
    if rules.hidden_characters == "enforce" and pin is not None and pin.seen.hidden:
        return Objection(HIDDEN, f"The server describes it with invisible characters ({pin.seen.hidden[0]}).")
    if rules.mode != "enforce" or (pin is not None and pin.stands):
        return None
    if pin is None:
        never = Objection(NOT_PINNED, "The server has never listed this tool.")
        return None if rules.unlisted == "allow" else never
    state = "is new" if pin.approved is None else "has changed"
    return Objection(NOT_PINNED, f"The tool {state} since the server's tools were pinned.")


def _asked(context: Context, tool: str, annotations: object) -> Call:
    """Return a call of a tool, as far as a list lets one know it."""
    caller, hints = context.principal, Hints.read(annotations)
    return Call("tools/call", context.server, caller.agent, tool, hints=hints, identity=caller.identity)


def _faces(tool: JsonObject, policy: Policy, call: Call, taken: Collection[str]) -> Iterator[JsonObject]:
    """Return what an agent sees of a tool: nothing, the tool, its two phases, or all three."""
    if not policy.could_allow(call):
        return
    governed = policy.governs(call)
    if governed != "always":
        yield offer_task(tool) if policy.offers_task(call) else tool
    if governed != "never":
        names = phase_names(tool["name"], taken)
        yield propose_tool(tool, names)
        yield commit_tool(tool, names)


def without_instructions(result: JsonObject) -> JsonObject:
    """Return a handshake's result without the instructions; no client needs them."""
    return {name: value for name, value in result.items() if name != "instructions"}


def _entry_name(entry: Any) -> str:
    named = (entry.get(field) for field in ("name", "uri", "uriTemplate")) if isinstance(entry, dict) else ()
    return next((name for name in named if isinstance(name, str)), "")[:256]


def is_tool_list(value: JsonObject) -> bool:
    """Return whether a client might take a response for the answer to a tools/list."""
    result = value.get("result")
    return isinstance(result, dict) and isinstance(result.get("tools"), list)


def _readable(tools: Any) -> Iterator[tuple[JsonObject, ToolPrint]]:
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and isinstance(tool.get("name"), str):
            with suppress(RecursionError):  # nested too deep to be pinned, so it is left out
                yield tool, print_tool(tool)


def _is_in_order(name: str, made: ToolPrint, pins: ServerPins | None, rules: PinRules) -> bool:
    if made.hidden and rules.hidden_characters == "enforce":
        return False
    return rules.mode != "enforce" or (pins is not None and name in pins.tools and pins.tools[name].stands)


def _findings(changes: tuple[ToolChange, ...], listed: Listed, rules: PinRules) -> Iterator[ToolFinding]:
    """Yield what is new in a list; a list that was seen before yields nothing."""
    latest = {tool["name"]: (tool, made) for tool, made in listed}
    for change in changes:
        tool, made = latest[change.tool]
        if change.what != "pinned":
            fields = [name[:60] for name in change.fields[:20]]  # the server's own words, so bounded
            detail = {"change": change.what, "fields": fields, "digest": made.digest[:16]}
            detail |= {"former": change.former} if change.former else {}
            detail |= {"departures": list(change.departures)} if change.departures else {}
            enforced = rules.mode == "enforce" and change.what != "edited"
            yield ToolFinding(
                "pin_changed", change.tool, enforced, None if change.what == "edited" else NOT_PINNED, detail
            )
        if made.hidden:
            enforced = rules.hidden_characters == "enforce"
            yield ToolFinding("hidden_characters", change.tool, enforced, HIDDEN, {"places": list(made.hidden)})
        if phrases := find_phrases(tool):
            yield ToolFinding("injection_phrase", change.tool, detail={"phrases": list(phrases)})
