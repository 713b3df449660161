"""From a probe to acts: what is bad is blamed, and what needs no permission is left out."""

from __future__ import annotations

from typing import Any

from proxy.learn.acts import STARTUP
from proxy.probe.canary import Canary, CanaryWatch
from proxy.probe.declared_scope import DeclaredScope
from proxy.probe.findings import ProbeCall
from proxy.probe.learning import acts_of_probe
from proxy.probe.observation_facts import ProbeObservation, RunContext
from proxy.probe.probe import ProbeEvidence
from proxy.trace.capability import Capability, Observation

KEY = Canary("~/.ssh/id_rsa", "abcdefghijkmnpqrstuvwxyz23456789abcdefgh")
SCOPE = DeclaredScope(network=True, named=("/h/documents/a",), hosts=frozenset({"x.example"}))


def acts(*records: ProbeObservation) -> list[tuple[Any, ...]]:
    context = RunContext("/h", "/p", "/w", {"/h/.ssh/id_rsa": KEY}, CanaryWatch((KEY,)))
    context.names["11.64.0.1"] = "x.example"
    context.ports.add("9222")
    context.sockets.add("/tmp/own.sock")
    calls = (ProbeCall("t", "all", "{}", SCOPE),)
    evidence = ProbeEvidence(records, calls, context, DeclaredScope(), (), ("s",), "/usr/bin/setpriv")
    return [(act.kind, act.target, dict(act.by), act.blamed, act.from_arguments) for act in acts_of_probe(evidence)]


def record(call: int | None, capability: str, action: str = "open", **fields: Any) -> ProbeObservation:
    return ProbeObservation(Observation(Capability(capability), action, 1, 1.0, "", **fields), call)


def test_a_good_act_is_counted_for_its_tool_and_knows_whether_it_was_named() -> None:
    assert acts(record(0, "fs.read", path="/h/documents/a"), record(0, "fs.read", path="/h/documents/a")) == [
        ("read", "/h/documents/a", {"t": 2}, None, True)
    ]
    assert acts(record(None, "fs.read", path="/usr/lib/x")) == [("read", "/usr/lib/x", {STARTUP: 1}, None, False)]


def test_a_bad_act_is_blamed() -> None:
    assert acts(record(0, "fs.read", path="/h/.ssh/id_rsa"))[0][3] == "canary-read"
    assert acts(record(0, "proc.exec", "exec", path="/usr/bin/id", argv=("id",)))[0][3] == "undeclared-exec"


def test_hosts_have_the_names_that_were_looked_up() -> None:
    assert acts(record(0, "net.connect", "connect", peer="11.64.0.1:443")) == [
        ("reach", "x.example:443", {"t": 1}, None, True)
    ]


def test_what_needs_no_permission_is_no_act() -> None:
    assert (
        acts(
            record(None, "proc.exec", "exec", path="/usr/bin/setpriv", argv=("setpriv",)),
            record(0, "net.connect", "connect", peer="127.0.0.1:9222"),
            record(0, "net.connect", "connect", peer="127.0.0.1:53"),
            record(0, "ipc.unix", "connect", path="/tmp/own.sock"),
            record(0, "fs.read", "look", path="/h/.netrc"),
            record(0, "fs.read", path="/h/nothing", error="ENOENT"),
        )
        == []
    )
