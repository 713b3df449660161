"""Run the tests that policy files have beside their flows. Pure, no I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from proxy.core.flows import Mark
from proxy.flows.fingerprint import KEY_BYTES, Fingerprinter
from proxy.flows.history import AgentHistory, pack
from proxy.flows.matching import match_flow
from proxy.flows.outgoing import keep, look, read_outgoing
from proxy.policy.conditions import as_tuple
from proxy.policy.flows import CompiledFlow, CompiledFlows
from proxy.policy.home import UNKNOWN_HOMES
from proxy.policy.rule_tests import TestResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from proxy.core.model import Json
    from proxy.flows.outgoing import Outgoing
    from proxy.policy.flow_rules import FlowRule, FlowSource, FlowTest, LabelRule

NOW: Final = 1_000_000.0
_PRINTER: Final = Fingerprinter(bytes(KEY_BYTES))


def run_flow_tests(labels: Iterable[LabelRule], flows: Iterable[FlowRule]) -> tuple[TestResult, ...]:
    """Run every test beside a flow against that flow alone, with the labels of the whole policy."""
    known = tuple(labels)
    return tuple(result for flow in flows for result in _run(known, flow))


def _run(labels: Sequence[LabelRule], rule: FlowRule) -> Iterator[TestResult]:
    compiled = CompiledFlows(labels, [rule], ())
    flow = CompiledFlow(rule, UNKNOWN_HOMES)
    for number, test in enumerate(rule.tests, 1):
        matched = _matches(compiled, flow, test)
        shown = f"{test.call.tool} {test.call.arguments!r}" if test.call else f"{test.request}"
        yield TestResult(rule.id, number, test.expect, rule.action if matched else "no_match", shown)


def _matches(compiled: CompiledFlows, flow: CompiledFlow, test: FlowTest) -> bool:
    history = AgentHistory(_PRINTER.key_id)
    marks = [mark for source in as_tuple(test.after) for mark in _marks(compiled, source)]
    history.update([replace(mark, number=number) for number, mark in enumerate(marks, 1)], NOW)
    if test.call is not None:
        call = test.call.as_call()
        applies = flow.fits_call(call) and not flow.spares(replace(call, history=history))
        sent: Json = flow.outgoing(call)
    else:
        assert test.request is not None
        applies = flow.fits_host(test.request.host, "agent")
        sent = {"host": test.request.host, "path": test.request.path, "body": test.request.body}
    return (
        applies
        and match_flow(flow, history, list(history.live(flow.labels, flow.rule.within)), _look(sent)) is not None
    )


def _look(sent: Json) -> Outgoing:
    reading = read_outgoing(sent)
    return look(_PRINTER, reading.texts, {}, complete=reading.complete)


def _marks(compiled: CompiledFlows, source: FlowSource) -> Iterator[Mark]:
    call = source.as_call()
    if source.host is not None:
        labels = compiled.for_request(source.host, source.agent).labels
    else:
        labels = compiled.for_call(call, ()).labels
    for label in labels:
        runs, values = pack(keep(_PRINTER, source.result, prose=label.rule.only == "prose"), _PRINTER.key_id)
        at = NOW - source.ago
        named = {"agent": call.agent, "call_id": "test", "server": call.server, "tool": call.tool}
        yield Mark(**named, labels=label.labels, at=at, expires_at=NOW + 1, shingles=runs, values=values)  # type: ignore[arg-type]
