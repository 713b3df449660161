"""What is refused before the gate is asked, and recorded."""

from __future__ import annotations

from unittest import mock

from addons import flow_state as flows
from addons.refusals import Refusals
from proxy.core.model import Decision, Outcome
from tests.addons.http_flows import make_flow, reason
from tests.support.gate_fixture import World, call


def test_a_request_that_names_two_hosts_is_refused() -> None:
    world, flow = World(), make_flow(call())
    flow.request.headers["host"] = "other.example.com"
    assert not Refusals(world.gate).names_agree(flow)
    assert (flow.response and flow.response.status_code, reason(flow)) == (421, "host_mismatch")
    assert [event.reason for event in world.events] == ["host_mismatch"]


def test_odd_framing_is_refused() -> None:
    world, flow = World(), make_flow(call(), Transfer_Encoding="gzip, chunked")
    assert not Refusals(world.gate).framing_is_plain(flow)
    assert (flow.response and flow.response.status_code, reason(flow)) == (400, "transfer_coding")


def test_what_may_not_leave_is_refused() -> None:
    world, flow = World(), make_flow(call())
    flows.state_of(flow).egress = Decision(Outcome.DENY, "egress_denied")
    assert not Refusals(world.gate).may_leave(flow)
    assert flow.response
    assert flow.response.status_code == 403


def test_a_failure_is_refused_also_where_it_cannot_be_recorded() -> None:
    world, flow = World(), make_flow(call())
    world.gate.recorder.record_refusal = mock.Mock(side_effect=OSError)  # type: ignore[method-assign]
    Refusals(world.gate).fail(flow, RuntimeError("boom"))
    assert (flow.response and flow.response.status_code, reason(flow)) == (502, "internal_error")
