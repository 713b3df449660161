"""Decide traffic by host, address, port and method. Pure, no I/O; `decide` never raises.

A request is decided once by its host name and again by the addresses that the name resolved
to. Dial only those addresses: a second lookup could return others (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from proxy.core.model import Decision, EgressRequest, Outcome, Redaction
from proxy.policy.agents import compile_agents
from proxy.policy.carried import host_checks, looks_inside, redactions_of
from proxy.policy.host_data import carries_data
from proxy.policy.host_operators import compile_hosts
from proxy.policy.hosts import Host, canonical_host, lookalikes
from proxy.policy.ip_address import Address, parse_address, unwrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.policy.rules import EgressPolicy, EgressRule

DENIED: Final = "egress_denied"
DEFAULT_DENY: Final = "egress_default_deny"
OPERATOR_PORT: Final = "operator_port"
POLICY_ERROR: Final = "policy_error"
AMBIGUOUS: Final = "ambiguous_value"
_NOT_IN_HOSTS: Final = frozenset("/\\@?# \t\r\n\0")
GUARDED: Final = ("metadata", "link_local", "private", "loopback")
_SEVERITIES: Final = ("info", "low", "medium", "high", "critical")
_MAX_REMEMBERED: Final = 4096
# What may happen to secrets in a request, from lax to strict.
SECRETS: Final = ("allow", "report", "deny")
# The rule id in a decision where the section's own `secrets` applies.
SECTION: Final = "egress.secrets"
_DETECTORS: Final = ("secrets",)


class Target(NamedTuple):
    """What a request would reach: its host, what the host imitates, and its addresses."""

    host: Host
    similar: tuple[Host, ...]
    addresses: tuple[Address, ...]

    def everything(self) -> tuple[Host, ...]:
        dialled = tuple(Host(str(address), (address,)) for address in self.addresses)
        return (self.host, *self.similar, *dialled)

    def classes(self) -> frozenset[str]:
        return frozenset(kind for host in self.everything() for classes in host.classes() for kind in classes)


class CompiledEgress:
    """The compiled egress section; `allows_by_address`: addresses can turn a refusal by default into an allow."""

    def __init__(self, section: EgressPolicy, *, version: str = "") -> None:
        self.section = section
        self.version = version
        self._rules = tuple(CompiledEgressRule(rule) for rule in sorted(section.rules, key=lambda r: r.id))
        self._remembered: dict[tuple[EgressRequest, tuple[tuple[str, int], ...]], Decision] = {}
        self.counts_names = any("many_names" in (rule.carries or ()) for rule in section.rules)
        self.allows_by_address = any(rule.action == "allow" and rule.cidrs for rule in section.rules)

    def decide(self, request: EgressRequest, operator: Sequence[tuple[str, int]] = ()) -> Decision:
        """Decide `request`; what cannot be judged is denied.

        `operator` are the addresses and ports of the proxy's own consoles. No agent may reach
        them, whatever the rules say: it could approve its own proposals there.
        """
        try:
            key = (request, tuple(operator))
            known = self._remembered.get(key)
            if known is None:
                if len(self._remembered) >= _MAX_REMEMBERED:
                    self._remembered.clear()
                known = self._remembered[key] = self._decide(*key)
        except Exception as error:  # noqa: BLE001 - the boundary: whatever goes wrong is a refusal
            return self._deny(POLICY_ERROR, f"The request could not be judged ({type(error).__name__}).")
        return known

    def _decide(self, request: EgressRequest, operator: Sequence[tuple[str, int]]) -> Decision:
        target = read_target(request)
        if target is None:
            return self._deny(AMBIGUOUS, f"{request.host!r} cannot be read as a host.")
        if _reaches_operator(target, request.port, operator):
            return self._deny(OPERATOR_PORT, "This is the proxy's own operator port; agents may not use it.")
        hits = [rule for rule in self._rules if rule.matches(request, target)]
        named = _without_lifted([rule for rule in hits if rule.decides(request, target)], hits)
        shadow = tuple(rule.id for rule in named if rule.rule.mode == "shadow")
        live = [rule for rule in named if rule.rule.mode != "shadow"]
        denies = [rule for rule in live if rule.rule.action == "deny"]
        if denies:
            winner = min(denies, key=lambda rule: (-_SEVERITIES.index(rule.rule.severity), rule.id))
            return replace(self._by_rule(Outcome.DENY, DENIED, winner.rule, live), shadow=shadow)
        # Before the allows: an allow of a name must not open what the name resolves to.
        for kind in GUARDED:
            if kind not in target.classes() or (said := getattr(self.section, kind)) == "allow":
                continue
            if said == "deny":
                message = f"{request.host} leads to a {kind.replace('_', '-')} address."
                return self._deny(f"egress_{kind}", message, shadow)
            shadow = (*shadow, f"egress.{kind}")
        allows = [rule.rule for rule in live if rule.rule.action == "allow"]
        if not allows and self.section.default == "deny":
            return self._deny(DEFAULT_DENY, f"No egress rule allows {request.host}:{request.port}.", shadow)
        if not allows and self.section.default == "report":
            shadow = (*shadow, "egress.default")
        reason = "egress_allowed" if allows else "egress_default_allow"
        allowed = self._by_rule(Outcome.ALLOW, reason, allows[0] if allows else None, live)
        redactions = (*redactions_of(rule.rule for rule in hits), *self._secrets(live))
        return replace(allowed, shadow=shadow, redactions=redactions)

    def names(self, decision: Decision) -> bool:
        """Return whether a rule that allowed a request names its hosts or addresses, and not just everything."""
        matched = [each.rule for each in self._rules if each.id in decision.matched]
        allows = [rule for rule in matched if rule.action == "allow" and rule.mode != "shadow"]
        return any(rule.cidrs or (rule.hosts and "*" not in rule.hosts) for rule in allows)

    def _secrets(self, live: Sequence[CompiledEgressRule]) -> tuple[Redaction, ...]:
        """Return what happens to secrets in a request: the strictest of the rules, or what the section says."""
        given = [(rule.rule.secrets, rule.id) for rule in live if rule.rule.secrets is not None]
        action, rule = max(given or [(self.section.secrets, SECTION)], key=lambda pair: SECRETS.index(pair[0]))
        return () if action == "allow" else (Redaction(rule, _DETECTORS, frozenset({"request"}), action),)

    def _deny(self, reason: str, message: str, shadow: tuple[str, ...] = ()) -> Decision:
        return Decision(Outcome.DENY, reason, message=message, shadow=shadow, policy_version=self.version)

    def _by_rule(
        self, outcome: Outcome, reason: str, rule: EgressRule | None, live: Sequence[CompiledEgressRule]
    ) -> Decision:
        matched = tuple(rule.id for rule in live)
        decision = Decision(outcome, reason, matched=matched, policy_version=self.version)
        if rule is None:
            return decision
        return replace(decision, rule=rule.id, message=rule.description, severity=rule.severity)


class CompiledEgressRule:
    """One compiled egress rule: a restriction matches if any reading of the target does, an allow only if all do."""

    def __init__(self, rule: EgressRule) -> None:
        self.rule = rule
        self.id = rule.id
        self._host_checks = host_checks(rule)
        self._hosts = compile_hosts(tuple(rule.hosts)) if rule.hosts else None
        self._networks = [ipaddress.ip_network(text, strict=False) for text in rule.cidrs or ()]
        self._ports = frozenset(rule.ports) if rule.ports else None
        self._methods = frozenset(m.upper() for m in rule.methods) if rule.methods else None
        self._fits_agent = compile_agents(rule.agents)

    def matches(self, request: EgressRequest, target: Target) -> bool:
        # A `secrets: allow` lifts a check, so it must be as sure as an allow.
        denies = "allow" not in (self.rule.action, self.rule.secrets)
        return (
            self._fits_agent(request.agent, request.identity)
            and (self._ports is None or request.port in self._ports)
            and self._fits_method(request, denies=denies)
            and self._fits_host(target, denies=denies)
            and self._fits_network(target, denies=denies)
        )

    def decides(self, request: EgressRequest, target: Target) -> bool:
        """Return whether a rule that matches decides on the host alone, or is about what the request carries."""
        if self.rule.carries is None:
            return True
        if self.rule.action == "allow":
            return False
        wanted = self._host_checks
        return (
            ("host_data" in wanted and carries_data(request.host))
            or ("many_names" in wanted and request.many_names)
            or ("odd_address" in wanted and _is_odd(request.host, target.host))
        )

    @property
    def lifts(self) -> frozenset[str]:
        """The host checks that this rule frees its hosts from."""
        return self._host_checks if self.rule.action == "allow" else frozenset()

    @property
    def scans(self) -> bool:
        """Whether it looks into the request."""
        return self.rule.action == "deny" and looks_inside(self.rule)

    @property
    def checks(self) -> frozenset[str]:
        return self._host_checks

    def _fits_method(self, request: EgressRequest, *, denies: bool) -> bool:
        if self._methods is None or (request.method is not None and request.method.upper() in self._methods):
            return True
        if request.judged_inside:
            return not denies
        # Inside a tunnel that is not opened any method may be used.
        return denies and request.method is None

    def _fits_host(self, target: Target, *, denies: bool) -> bool:
        if self._hosts is None:
            return True
        return any(map(self._hosts.may, target.everything())) if denies else self._hosts.must(target.host)

    def _fits_network(self, target: Target, *, denies: bool) -> bool:
        if not self._networks:
            return True
        known = [address for host in target.everything() for address in host.addresses]
        hits = [any(address in network for network in self._networks) for address in known]
        return any(hits) if denies else bool(hits) and all(hits)


def _without_lifted(named: list[CompiledEgressRule], hits: Sequence[CompiledEgressRule]) -> list[CompiledEgressRule]:
    """Return the rules that decide, without those whose every host check another rule frees this host from."""
    lifted = frozenset[str]().union(*(rule.lifts for rule in hits))
    return [rule for rule in named if not rule.checks or not rule.checks <= lifted]


def _is_odd(written: str, host: Host) -> bool:
    """Return whether an address is written so that few would take it for one: 0x7f.1, ::ffff:10.0.0.1, 0.0.0.0."""
    if not host.addresses:
        return False
    plain = parse_address(written)
    return plain is None or len(host.addresses) > 1 or "unspecified" in host.classes()[0]


def read_target(request: EgressRequest) -> Target | None:
    """Return what a request would reach, or None for an unreadable host; raise ValueError for an unreadable address."""
    # Characters that end a host or start a login in a URL: readers would disagree on the host.
    if not _NOT_IN_HOSTS.isdisjoint(request.host) or ("[" in request.host) != ("]" in request.host):
        return None
    host = canonical_host(request.host)
    if host is None or not host.name:
        return None
    addresses: list[Address] = []
    for text in request.addresses:
        address = parse_address(text)
        if address is None:
            raise ValueError(f"not an address: {text!r}")
        addresses.extend(unwrap(address))
    return Target(host, tuple(lookalikes(host)), tuple(dict.fromkeys(addresses)))


def _reaches_operator(target: Target, port: int, operator: Sequence[tuple[str, int]]) -> bool:
    known = {address for host in target.everything() for address in host.addresses}
    local = bool({"loopback", "unspecified"} & target.classes())
    # A console bound to 0.0.0.0 is reached by every address of the machine: the port alone decides.
    return any(
        address is None or address.is_unspecified or address in known or (address.is_loopback and local)
        for address in [parse_address(text) for text, own in operator if own == port]
    )
