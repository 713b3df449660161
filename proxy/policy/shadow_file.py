"""A policy file that only records: the same rules, none of which denies, masks or holds anything. Pure, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.policy.rules import RedactRule
from proxy.policy.sandboxes import only_recording

if TYPE_CHECKING:
    from proxy.policy.rules import EgressPolicy, Pins, PolicyFile, Rule

_GUARDED = ("default", "metadata", "link_local", "private", "loopback", "secrets")


def without_force(content: PolicyFile) -> PolicyFile:
    """Return `content` with every rule in shadow mode and every setting at its recording value."""
    return content.model_copy(
        update={
            "default": "allow",
            "rules": [_recording(rule) for rule in content.rules],
            "egress": _recording_egress(content.egress) if content.egress else None,
            **{
                name: [rule.model_copy(update={"mode": "shadow"}) for rule in getattr(content, name)]
                for name in ("incoming", "flows", "limits")
            },
            "pins": _recording_pins(content.pins) if content.pins else None,
            "sandbox": only_recording(content.sandbox),
        }
    )


def _recording(rule: Rule) -> Rule:
    # A redact rule in shadow mode would not look for anything; one that reports records what it finds.
    if isinstance(rule, RedactRule):
        return rule.model_copy(update={"redact": "report"})
    return rule.model_copy(update={"mode": "shadow"})


def _recording_egress(section: EgressPolicy) -> EgressPolicy:
    softer = {name: "report" for name in _GUARDED if getattr(section, name) == "deny"}
    rules = [
        rule.model_copy(update={"secrets": "report"} if rule.secrets == "deny" else {"mode": "shadow"})
        if rule.action != "allow"
        else rule
        for rule in section.rules
    ]
    return section.model_copy(update={**softer, "rules": rules})


def _recording_pins(pins: Pins) -> Pins:
    softer = {name: "record" for name in ("mode", "hidden_characters") if getattr(pins, name) == "enforce"}
    return pins.model_copy(update=softer)
