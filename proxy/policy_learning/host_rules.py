"""Egress rules from recorded requests: which agents went to which hosts. Pure, and bounded.

A request that is not MCP is recorded only where the policy says so (`egress: {default: report}`). Without such records
nothing is known of where agents go, and no rule is made: it would stop all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from proxy.core.rule_proposals import HOST as RULE_HOST
from proxy.errors import PolicyError
from proxy.policy.rule_tests import run_tests
from proxy.policy.rules import EgressRule
from proxy.policy_learning.evidence import Evidence, told
from proxy.policy_learning.names import as_globs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_HOSTS: Final = 1000  # of all agents together
REPORTED: Final = "egress.default"
_REQUESTS: Final = frozenset({"request_shadowed", "request_reported"})
_NETWORK: Final = frozenset({"http", "sse", "websocket"})
_SERVER: Final = re.compile(r"(\[[^\]]+\]|[^:\[\]]+)(?::([0-9]{1,5}))?")
_OWN_PORTS: Final = [80, 443]  # a server's name leaves out the port of its scheme


@dataclass(slots=True)
class HostRequests:
    """The recorded requests to one host and port, by agent."""

    server: str
    by_agent: dict[str, Evidence] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LearnedHost:
    """An egress rule as a policy file has it, and what it rests on."""

    values: Mapping[str, Any]
    requests: HostRequests

    @property
    def id(self) -> str:
        return str(self.values["id"])

    def evidence(self) -> dict[str, Any]:
        """Return what the rule rests on, as JSON."""
        return {"rule": self.id, **told(self.requests.by_agent.values()), "made_of": {}}


class HostLearner:
    """Sums up where agents went."""

    def __init__(self) -> None:
        self._hosts: dict[str, HostRequests] = {}
        self._odd: list[str] = []
        self.known = False

    def add(self, event: Mapping[str, Any], audit_id: str) -> None:
        """Take a request, or a call over the network, that was let through."""
        is_call = event.get("kind") == "decided" and event.get("transport") in _NETWORK
        if event.get("decision") != "allow" or not (is_call or event.get("kind") in _REQUESTS):
            return
        self.known = self.known or REPORTED in (event.get("shadow_rules") or ())
        server, agent = str(event.get("server") or ""), str(event.get("agent") or "")
        if server == RULE_HOST:
            return
        if not server or not agent or not _SERVER.fullmatch(server):
            self._odd.append(audit_id)
            return
        if server not in self._hosts and len(self._hosts) >= MAX_HOSTS:
            raise PolicyError(f"the trail has more than {MAX_HOSTS} hosts; narrow them with --agent")
        requests = self._hosts.setdefault(server, HostRequests(server))
        requests.by_agent.setdefault(agent, Evidence()).add(audit_id, float(event.get("time") or 0.0))

    def rules(self) -> tuple[tuple[LearnedHost, ...], list[str]]:
        """Return a rule for each host, and audit ids of requests that none can name; nothing where none is recorded."""
        found, ids, unnamed = [], dict[str, int](), list(self._odd) if self.known else []
        for requests in sorted(self._hosts.values(), key=lambda one: one.server) if self.known else ():
            rule = _rule(requests, _rule_id(requests.server, ids))
            if rule is None:
                unnamed.extend(one for each in requests.by_agent.values() for one in each.audit_ids)
            else:
                found.append(rule)
        return tuple(found), unnamed


def _rule(requests: HostRequests, rule_id: str) -> LearnedHost | None:
    match = _SERVER.fullmatch(requests.server)
    assert match is not None
    host, ports = match[1].strip("[]"), [int(match[2])] if match[2] else _OWN_PORTS
    agents = sorted(requests.by_agent)
    values: dict[str, Any] = {"id": rule_id, "action": "allow", "agents": as_globs(*agents), "hosts": as_globs(host)}
    values["ports"] = list(ports)
    values["tests"] = list(_tests(host, ports[-1], agents[0]))
    try:
        rule = EgressRule.model_validate(values)
    except ValueError:
        return None
    # An odd name that the rule would not fit: better no rule than one that seems to allow it.
    return LearnedHost(values, requests) if all(one.passed for one in run_tests((), [rule])) else None


def _tests(host: str, port: int, agent: str) -> Iterator[dict[str, Any]]:
    request = {"host": host, "port": port, "agent": agent}
    yield {"request": request, "expect": "allow"}
    for other in ({"host": "attacker.example"}, {"port": 25}, {"agent": "interlock-never-seen"}):
        yield {"request": {**request, **other}, "expect": "no_match"}


def _rule_id(server: str, ids: dict[str, int]) -> str:
    name = f"learned-host-{re.sub(r'[^A-Za-z0-9._-]+', '-', server).strip('-')[:70]}"
    ids[name] = ids.get(name, 0) + 1
    return name if ids[name] == 1 else f"{name}.{ids[name]}"
