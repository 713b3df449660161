"""Whether a flow stops something, beside what tests/gate/test_flows.py shows through the gate."""

from __future__ import annotations

from typing import Any

from proxy.flows.matching import match_flow
from proxy.flows.outgoing import Outgoing
from proxy.policy.flow_rules import FlowRule
from proxy.policy.flows import CompiledFlow
from tests.flows.test_history import PRINTER, TEXT, history, mark

SENT = Outgoing(frozenset(PRINTER.every([TEXT])), {}, complete=True)
OTHER = Outgoing(frozenset(PRINTER.every([b"nothing of the kind at all"])), {}, complete=True)


def flow(**fields: Any) -> CompiledFlow:
    return CompiledFlow(FlowRule.model_validate({"id": "f", "from": "private", "to": {"tools": ["x"]}, **fields}), ())


def stops(made: CompiledFlow, sent: Outgoing, *marks: Any) -> bool:
    known = history(*marks)
    return match_flow(made, known, list(known.live(made.labels, 10)), sent) is not None


def test_by_session_anything_is_stopped() -> None:
    assert stops(flow(), OTHER, mark())
    assert not stops(flow(), OTHER)


def test_by_content_only_the_data_is() -> None:
    assert stops(flow(by="content"), SENT, mark())
    assert not stops(flow(by="content"), OTHER, mark())
    assert not stops(flow(by="content"), SENT, mark(labels=("other",)))


def test_what_is_not_known_whole_counts_as_the_data() -> None:
    unread = mark(2, complete=False)
    assert stops(flow(by="content"), OTHER, mark(), unread)
    assert not stops(flow(by="content", beyond="sample"), OTHER, mark(), unread)
    assert stops(flow(by="content"), Outgoing(OTHER.prints, {}, complete=False), mark())


def test_nothing_is_read_where_there_is_nothing_to_look_for() -> None:
    def fail() -> Outgoing:
        raise AssertionError

    made, known = flow(by="content"), history()
    assert match_flow(made, known, [], fail) is None
    bare = history(mark(shingles=b"", values=b""))
    assert match_flow(made, bare, list(bare.marks), fail) is None
