"""A call in flight as JSON, so that another worker can take its answer. Pure.

It holds what the response path needs: no arguments, and nothing that is shown to the agent.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from proxy.core import model
from proxy.core.identity import Identity
from proxy.core.proposals import RunningCommit


def to_json(in_flight: model.InFlightCall) -> str:
    """Encode a call in flight."""
    context, message, decision = in_flight.context, in_flight.message, in_flight.decision
    return json.dumps(
        {
            "call_id": in_flight.call_id,
            "message": {"id": message.id, "method": message.method, "params": message.params},
            "envelope": {"jsonrpc": "2.0"} if "jsonrpc" in message.value else {},
            "principal": asdict(context.principal),
            "context": {name: getattr(context, name) for name in _CONTEXT},
            "call": {name: getattr(in_flight.call, name) for name in _CALL},
            "hints": asdict(in_flight.call.hints),
            "decision": {name: getattr(decision, name) for name in _DECISION},
            "redactions": [{**asdict(each), "on": sorted(each.on)} for each in decision.redactions],
            "times": [in_flight.started, in_flight.forwarded],
            "commit": asdict(in_flight.commit) if in_flight.commit else None,
            "said": in_flight.said,
            "findings": [asdict(finding) for finding in in_flight.findings],
            "begun": in_flight.begun,
            "traceparent": in_flight.traceparent,
        }
    )


def from_json(text: str, *, is_open: bool) -> model.InFlightCall:
    """Decode a call that another worker shared. Raises ValueError, KeyError or TypeError for anything else."""
    value: model.JsonObject = json.loads(text)
    message, decision = value["message"], value["decision"]
    started, forwarded = value["times"]
    return model.InFlightCall(
        call_id=value["call_id"],
        message=model.Message(
            model.Kind.REQUEST,
            {**value["envelope"], "params": message["params"]},
            message["method"],
            message["id"],
        ),
        context=model.Context(principal=_principal(value["principal"]), **value["context"]),
        call=model.Call(**value["call"], hints=model.Hints(**value["hints"])),
        decision=model.Decision(
            **{**decision, "outcome": model.Outcome(decision["outcome"]), "matched": tuple(decision["matched"])},
            redactions=tuple(map(_redaction, value["redactions"])),
        ),
        started=started,
        forwarded=forwarded,
        closed=not is_open,
        commit=RunningCommit(**value["commit"]) if value["commit"] else None,
        said=value["said"],
        findings=tuple(model.Finding(**finding) for finding in value["findings"]),
        begun=value["begun"],
        traceparent=value.get("traceparent"),  # a worker of an older version says nothing of it
        shared=True,
    )


def _principal(value: dict[str, Any]) -> model.Principal:
    told = value.pop("identity", None)
    identity = Identity(**{**told, "shown": tuple(told["shown"])}) if told is not None else None
    return model.Principal(**value, identity=identity)


def _redaction(value: dict[str, Any]) -> model.Redaction:
    return model.Redaction(
        value["rule"],
        tuple(value["detectors"]),
        frozenset(value["on"]),
        value["action"],
        tuple(model.Suppression(**entry) for entry in value["suppressions"]),
    )


_CONTEXT = ("server", "transport", "revision", "session")
_CALL = ("method", "server", "agent", "tool")
_DECISION = ("outcome", "reason", "rule", "matched", "policy_version")
