"""Hands what a probe observed to those who learn a profile from it: acts, and what is bad about them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.learn.acts import KINDS, MISSING, STARTUP, Acts, target_of
from proxy.probe.declared_scope import is_under
from proxy.probe.findings import blamed_by
from proxy.probe.observation_facts import facts
from proxy.probe.rulebook import rulebook
from proxy.trace.capability import Capability

if TYPE_CHECKING:
    from proxy.probe.declared_scope import DeclaredScope
    from proxy.probe.observation_facts import ProbeObservation
    from proxy.probe.probe import ProbeEvidence


def acts_of_probe(evidence: ProbeEvidence) -> Acts:
    """Return the acts of a probe; what a rule of severity high speaks of is blamed."""
    acts, context, rules = Acts(), evidence.context, rulebook()
    for record in evidence.records:
        seen, kind = record.observation, KINDS.get(record.observation.capability)
        if kind is None or seen.error in MISSING or seen.action in ("look", "watch"):
            continue
        call = evidence.calls[record.call] if record.call is not None else None
        scope = call.scope if call else evidence.startup
        peer = context.target(seen) if seen.peer and not seen.name else seen.peer
        target = target_of(kind, seen.action, seen.path, peer, seen.name)
        if target is None or seen.path == evidence.starter or _is_own(record, scope, evidence):
            continue
        named = _is_named(record, target, scope, evidence)
        acts.add(
            kind, target, call.tool if call else STARTUP, blamed=blamed_by(record, scope, context, rules), named=named
        )
    return acts


def _is_own(record: ProbeObservation, scope: DeclaredScope, evidence: ProbeEvidence) -> bool:
    """Return whether it is between the server's own processes, or with the resolver, which nobody has to permit."""
    seen, context = record.observation, evidence.context
    if seen.capability is Capability.NET_CONNECT:
        true = facts(record, scope, context)
        return "remote" not in true and "loopback" not in true
    return seen.capability is Capability.IPC_UNIX and seen.path in context.sockets


def _is_named(record: ProbeObservation, target: str, scope: DeclaredScope, evidence: ProbeEvidence) -> bool:
    if record.call is None:
        return False
    if record.observation.capability in (Capability.NET_CONNECT, Capability.NET_DNS):
        host = (record.observation.name or evidence.context.host(record.observation.peer or "")).lower().rstrip(".")
        return any(host == each or host.endswith(f".{each}") for each in scope.hosts)
    return is_under(target, scope.named)
