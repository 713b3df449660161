"""Screens what servers, pages and other agents say for text that speaks to the model, as policy asks.

Costs nothing where no rule asks. What cannot be examined is withheld where a rule would strip or withhold it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import structlog

from proxy.core.model import Context, JsonObject, Place, Screening, frozen
from proxy.injection.content import PageContent, ValueContent
from proxy.policy.incoming import meets
from proxy.wire.a2a import METHODS as A2A_METHODS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from proxy.core.interfaces import IncomingRules, Policy
    from proxy.core.model import Call
    from proxy.gate.event_recorder import EventRecorder
    from proxy.gate.tool_pins import ToolPrint
    from proxy.injection.passages import Passage

log = structlog.get_logger("interlock.gate")

REASON: Final = "injected_instructions"
MAX_PLACES: Final = 20
MAX_KNOWN: Final = 4096
# The parts of an entry in a list by which rules name them; what is neither is the protocol's.
_SCHEMAS: Final = ("inputSchema", "outputSchema", "arguments")

type Note = Callable[[Context, str | None, tuple[str, ...]], None]
"""Takes the labels of what an agent has seen, with the call that brought it."""


def no_note(_context: Context, _call_id: str | None, _labels: tuple[str, ...]) -> None:
    """Keep no labels."""


@frozen()
class Screened:
    """What is left of a value: itself where nothing was found. `withheld` names the rule where it may not pass."""

    value: Any
    withheld: str | None = None
    labels: tuple[str, ...] = ()


class Incoming:
    """Screens values. Never raises."""

    def __init__(self, policy: Callable[[], Policy], recorder: EventRecorder, note: Note = no_note) -> None:
        self._policy = policy
        self._recorder = recorder
        self._note = note
        self._tools: dict[tuple[str, str, str, str], Screened] = {}
        self._rules: IncomingRules | None = None
        self._asked: dict[tuple[str, str, str, str], tuple[Screening, ...]] = {}

    def asks(self, place: Place, context: Context, tool: str = "") -> tuple[Screening, ...]:
        """Return what the rules in force ask for at a place."""
        # Every call asks twice at least, so an answer is kept for as long as the same rules are in force.
        rules = self._policy().incoming
        if rules is not self._rules or len(self._asked) >= MAX_KNOWN:
            self._rules, self._asked = rules, {}
        key = (place, context.server, context.principal.agent, tool)
        known = self._asked.get(key)
        if known is None:
            known = self._asked[key] = rules.asked(*key) if rules else ()
        return known

    def screen(
        self, place: Place, context: Context, value: Any, *, tool: str = "", call_id: str | None = None
    ) -> Screened:
        """Return what may pass of a JSON value that came in."""
        asked = self.asks(place, context, tool)
        if not asked:
            return Screened(value)
        return self._screened(asked, lambda: ValueContent(value), value, _Where(place, context, tool, call_id))

    def objects(self, context: Context, call: Call, call_id: str) -> str | None:
        """Return the rule for which a call may not be made: what it tells another agent, or a tool, is for a model."""
        place: Place = "messages" if call.method in A2A_METHODS else "arguments"
        if not self.asks(place, context, call.tool or ""):
            return None
        return self.screen(place, context, call.arguments, tool=call.tool or "", call_id=call_id).withheld

    def screen_page(self, context: Context, read: Callable[[], PageContent | ValueContent], page: Any) -> Screened:
        """Return what may pass of a page; `read` reads it, and may raise."""
        asked = self.asks("pages", context)
        return self._screened(asked, read, page, _Where("pages", context)) if asked else Screened(page)

    def screen_tool(self, context: Context, tool: JsonObject, made: ToolPrint) -> JsonObject | None:
        """Return a tool of a list, or an entry of another list, as it may be shown; None where it may not."""
        screened = self._screened_tool(context, tool, made.digest)
        return None if screened.withheld is not None else screened.value

    def withholds_tool(self, context: Context, name: str, made: ToolPrint) -> str | None:
        """Return the rule for which a tool may not be called as it was last listed, if there is one."""
        rules = self._policy().incoming
        if not rules:
            return None
        asked = (*self.asks("descriptions", context, name), *self.asks("schemas", context, name))
        strict = [each for each in asked if each.action != "flag" and not each.shadow]
        if not strict:
            return None
        known = self._tools.get(self._key(context, made.digest))
        if known is None and made.definition is None:
            return strict[0].rule  # too long to be kept, and so to be examined here
        known = known or self._screened_tool(context, made.definition or {}, made.digest)
        return known.withheld

    def _key(self, context: Context, digest: str) -> tuple[str, str, str, str]:
        return self._policy().version, context.server, context.principal.agent, digest

    def _screened_tool(self, context: Context, tool: JsonObject, digest: str) -> Screened:
        """Return a tool screened; each definition once, so that each finding is recorded once."""
        if not self._policy().incoming:
            return Screened(tool)
        key = self._key(context, digest)
        if (known := self._tools.get(key)) is None:
            if len(self._tools) >= MAX_KNOWN:
                self._tools.clear()
            known = self._tools[key] = self._screen_parts(context, tool)
        return known

    def _screen_parts(self, context: Context, tool: JsonObject) -> Screened:
        name = str(tool.get("name", ""))
        schemas = {key: value for key, value in tool.items() if key in _SCHEMAS}
        said = {key: value for key, value in tool.items() if key not in _SCHEMAS}
        shown, labels = tool, tuple[str, ...]()
        parts: tuple[tuple[Place, JsonObject], ...] = (("descriptions", said), ("schemas", schemas))
        for place, part in parts:
            screened = self.screen(place, context, part, tool=name)
            if screened.withheld is not None:
                return screened
            labels += screened.labels
            shown = shown if screened.value is part else {**shown, **screened.value}
        return Screened(shown, None, labels)

    def _screened(
        self, asked: Sequence[Screening], read: Callable[[], PageContent | ValueContent], value: Any, where: _Where
    ) -> Screened:
        try:
            content = read()
            if not content.passages:
                return Screened(value)
            return self._act(asked, content, value, where)
        except Exception as error:  # noqa: BLE001  what cannot be examined is withheld, if a rule may withhold at all
            return self._failed(asked, value, where, error)

    def _act(
        self, asked: Sequence[Screening], content: PageContent | ValueContent, value: Any, where: _Where
    ) -> Screened:
        labels: dict[str, None] = {}
        cut: dict[Passage, None] = {}
        withheld: str | None = None
        for screening in asked:
            hits = [passage for passage in content.passages if meets(passage, screening)]
            if not hits:
                continue
            self._record(screening, where, hits, content)
            if screening.shadow:
                continue
            labels |= dict.fromkeys(screening.labels)
            cut |= dict.fromkeys(hits) if screening.action == "strip" else {}
            withheld = withheld or (screening.rule if screening.action == "withhold" else None)
        self._label(where, tuple(labels))
        if withheld is not None:
            return Screened(None, withheld, tuple(labels))
        left = content.without(sorted(cut, key=lambda each: each.start)) if cut else value
        return Screened(left, None, tuple(labels))

    def _failed(self, asked: Sequence[Screening], value: Any, where: _Where, error: Exception) -> Screened:
        live = [screening for screening in asked if not screening.shadow]
        strict = next((screening for screening in live if screening.action != "flag"), None)
        log.error("incoming text cannot be examined", server=where.context.server, place=where.place, exc_info=error)
        labels = tuple(dict.fromkeys(label for screening in live for label in screening.labels))
        for screening in [strict] if strict else live:
            self._record(screening, where, (), None, error=type(error).__name__)
        self._label(where, labels)
        return Screened(value if strict is None else None, strict.rule if strict else None, labels)

    def _label(self, where: _Where, labels: tuple[str, ...]) -> None:
        if labels:
            self._note(where.context, where.call_id, labels)

    def _record(
        self,
        screening: Screening,
        where: _Where,
        hits: Sequence[Passage],
        content: PageContent | ValueContent | None,
        **more: str,
    ) -> None:
        detail: JsonObject = {
            "place": where.place,
            "action": screening.action,
            "labels": list(screening.labels),
            **more,
        }
        detail |= {"shadow": True} if screening.shadow else {}
        detail |= {"signs": list(dict.fromkeys(kind for hit in hits for kind in hit.kinds))}
        detail |= {"confidence": _best(hits), "passages": len(hits)}
        if isinstance(content, ValueContent):
            detail["places"] = list(content.places(hits))[:MAX_PLACES]
        withholds = screening.action == "withhold" and not screening.shadow
        self._recorder.screened(
            where.context, where.tool or None, where.call_id, screening, detail, withholds=withholds
        )


@frozen()
class _Where:
    """Where a text came from."""

    place: Place
    context: Context
    tool: str = ""
    call_id: str | None = None


def _best(hits: Iterable[Passage]) -> str | None:
    return max(hits, key=lambda hit: hit.score).confidence if hits else None
