"""A policy learned from the trail as a draft in the editor, with what each of its rules rests on."""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from proxy.console.policy_editor import MAX_TEXT
from proxy.core.event import Filter
from proxy.errors import AuditUnavailableError, PolicyError, StoreUnavailableError
from proxy.policy_learning.policy_text import policy_text
from proxy.policy_learning.trail_learner import Scope, learn_policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxy.console.trail import Trail

SPANS: Final = {"1h": 3600.0, "24h": 86_400.0, "7d": 604_800.0, "30d": 2_592_000.0}
MAX_EVENTS: Final = 20_000
MAX_NAME: Final = 300
MAX_MARKED: Final = 200
_LEARNED_FROM: Final = frozenset({"decided", "request_shadowed", "request_reported"})
_NARROW: Final = "choose an agent or a shorter time, or use interlock policy learn"


@dataclass(frozen=True, slots=True)
class LearnedDraft:
    """What was asked for, and the policy that came of it; `problem` says why there is none."""

    span: str
    agent: str
    marked: str
    text: str = ""
    problem: str = ""
    figures: Mapping[str, int] = field(default_factory=dict[str, int])
    evidence: Sequence[Mapping[str, Any]] = ()


async def learn_draft(trail: Trail, query: Mapping[str, str]) -> LearnedDraft | None:
    """Return the draft that a page's query asks for; None where it asks for none."""
    span = query.get("learn", "")
    if span not in SPANS:
        return None
    asked = LearnedDraft(span, query.get("agent", "").strip()[:MAX_NAME], query.get("except", "").strip())
    ids = [one for one in re.split(r"[\s,]+", asked.marked) if one]
    if len(ids) > MAX_MARKED:
        return _failed(asked, f"At most {MAX_MARKED} audit ids can be left out here.")
    now = time.time()
    where = Filter(since=now - SPANS[span], until=now, agent=asked.agent or None)
    try:
        events = await _events(trail, where)
    except (StoreUnavailableError, AuditUnavailableError) as error:
        return _failed(asked, f"The trail cannot be read: {error}")
    if len(events) > MAX_EVENTS:
        return _failed(asked, f"The trail has more than {MAX_EVENTS} calls of that time: {_NARROW}.")
    try:
        return await asyncio.to_thread(_learn, asked, events, frozenset(ids))
    except PolicyError as error:
        return _failed(asked, str(error))


async def _events(trail: Trail, where: Filter) -> list[dict[str, Any]]:
    """Return the events to learn from, one more than fit at most."""
    found: list[dict[str, Any]] = []
    async with trail.open() as reader:
        async for entry in reader.entries(where):
            event = json.loads(entry.body)
            if event.get("kind") in _LEARNED_FROM:
                found.append(event)
            if len(found) > MAX_EVENTS:
                break
    return found


def _learn(asked: LearnedDraft, events: Sequence[Mapping[str, Any]], marked: frozenset[str]) -> LearnedDraft:
    learned = learn_policy(lambda: events, Scope(marked))
    if not learned.rules and not learned.hosts:
        return _failed(asked, "The trail has no allowed calls of that time to learn from.")
    text = policy_text(learned, f"the trail of {asked.span}" + (f", agent {asked.agent}" if asked.agent else ""))
    if len(text) > MAX_TEXT:
        return _failed(asked, f"The learned policy has more than {MAX_TEXT} characters: {_NARROW}.")
    figures = {name: getattr(learned, name) for name in ("learned", "denied", "marked")}
    figures |= {"uncovered": len(learned.uncovered), "rules": len(learned.rules), "hosts": len(learned.hosts)}
    return LearnedDraft(asked.span, asked.agent, asked.marked, text, "", figures, learned.evidence())


def _failed(asked: LearnedDraft, problem: str) -> LearnedDraft:
    return LearnedDraft(asked.span, asked.agent, asked.marked, problem=problem)
