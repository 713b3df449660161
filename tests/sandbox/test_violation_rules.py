from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from proxy.core.acts import Act
from proxy.core.model import Call
from proxy.sandbox.profile import SandboxProfile
from proxy.sandbox.violation_rules import CombinedRules, SandboxRules
from tests.sandbox.test_violations import GRANTED

if TYPE_CHECKING:
    from proxy.core.acts import ActPhase

CALL = Call("tools/call", "files", "bot", tool="read")
DENIED = Act("fs.read", "open", "/etc/shadow", error="EACCES")
DONE = Act("fs.read", "open", "/etc/shadow")


def met(act: Act, phase: ActPhase = "call", **profile: object) -> list[tuple[str, str, bool]]:
    rules = CombinedRules(SandboxRules(SandboxProfile.model_validate(profile), GRANTED))
    return [(each.rule, each.outcome, each.shadow) for each in rules.judge(act, phase, CALL)]


@pytest.mark.parametrize(("then", "outcome"), [("tell", "tell"), ("withhold", "withhold"), ("end", "deny")])
def test_a_refused_act_does_what_the_profile_says(then: str, outcome: str) -> None:
    assert met(DENIED, on_violation=then) == [("sandbox: read and write do not list it", outcome, False)]
    assert met(DENIED, "startup", on_violation=then) == [("sandbox: read and write do not list it", "tell", False)]
    assert met(DONE, on_violation=then) == []


def test_a_file_that_is_only_out_of_sight_is_told_and_nothing_is_withheld() -> None:
    granted = replace(GRANTED, exists=lambda _: True)
    rules = SandboxRules(SandboxProfile(on_violation="end"), granted)
    (found,) = rules.judge(DONE._replace(error="ENOENT"), "call", CALL)
    assert (found.outcome, found.shadow) == ("tell", False)


@pytest.mark.parametrize("mode", ["shadow", "learn"])
def test_what_would_be_refused_is_only_noted(mode: str) -> None:
    assert met(DONE, mode=mode, on_violation="end") == [("sandbox: read and write do not list it", "deny", True)]
    assert met(DENIED, mode=mode) == []


def test_a_peer_and_a_name_are_judged_as_they_are() -> None:
    assert met(Act("net.dns", "lookup", host="evil.example"), mode="shadow") != []
    assert met(Act("net.dns", "lookup", host="api.example.com"), mode="shadow") == []
    assert met(Act("net.connect", "connect", host="93.184.216.34", port=443), mode="shadow") == []


def test_answers_are_held_where_one_may_be_withheld() -> None:
    for then, mode, holds in (("tell", None, False), ("withhold", None, True), ("end", "shadow", False)):
        rules = CombinedRules(SandboxRules(SandboxProfile(on_violation=then, mode=mode), GRANTED))  # type: ignore[arg-type]
        assert bool(rules)
        assert rules.holds_answers("files") is holds
