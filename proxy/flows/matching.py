"""Whether a flow stops what goes out, by what came in. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.flows.history import AgentHistory, Found
from proxy.flows.telling_values import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.core.flows import Mark
    from proxy.flows.outgoing import Outgoing
    from proxy.policy.flows import CompiledFlow


def match_flow(
    flow: CompiledFlow, history: AgentHistory, live: Sequence[Mark], outgoing: Outgoing | Callable[[], Outgoing]
) -> Found | None:
    """Return the mark for which a flow stops what goes out; None where it does not.

    `live` are the marks that count, newest first. `outgoing` is made only where there is something to look for.
    """
    if not live:
        return None
    if not flow.by_content:
        return Found(live[0])
    rule = flow.rule
    loose = next((mark for mark in live if not mark.complete), None) if rule.beyond == "session" else None
    if not history.has_prints:
        return Found(loose) if loose is not None else None
    sent, numbers = outgoing() if callable(outgoing) else outgoing, {mark.number for mark in live}
    kinds = [KINDS.index(kind) for kind in rule.values]
    found = history.find(sent.prints, rule.run, kinds, lambda mark: mark.number in numbers)
    if found is not None:
        return found
    # What could not be read to its end may hold anything that came in.
    unsure = loose or (live[0] if not sent.complete else None)
    return Found(unsure) if unsure is not None else None
