import pytest

from proxy.core.model import Call, Outcome
from proxy.policy.load import compile_sources, load_text
from proxy.policy.merged_file import merged_values
from proxy.policy.past import Past
from proxy.policy_learning.proof import prove

NARROW = "version: 1\nrules: [{id: r, action: allow, tools: [read], when: {arg: path, path_under: /srv/app}}]\n"
WIDE = NARROW.replace("/srv/app", "/srv")
MASKS = "version: 1\nrules: [{id: m, action: redact, redact: deny, detectors: [secrets], on: [arguments]}]\n"


def proven(before, after):
    sources = [(load_text(text, "policy", None),) for text in (before, after)]
    first, second = (merged_values(one, with_defaults=True) for one in sources)
    return prove(*sources, (first, second))


def test_narrower_is_proven_and_wider_has_a_call():
    assert proven(WIDE, NARROW).answer == "no"
    verdict = proven(NARROW, WIDE)
    assert verdict.answer == "yes"
    assert verdict.witness is not None


def test_what_stands_beside_rules_makes_it_unknown():
    verdict = proven(WIDE + "limits: [{id: l, count: 1, within: 1h}]\n", NARROW)
    assert (verdict.answer, verdict.why) == ("unknown", ["limits differ, and only rules are compared"])


def test_redact_rules_that_deny_make_it_unknown():
    assert proven(MASKS + "default: allow\n", "version: 1\ndefault: allow\n").answer == "unknown"


@pytest.mark.parametrize(
    ("condition", "value"),
    [("type: integer", 10**400), ("matches: a", r'{"k": "\ud800"}'), ("equals: a", "%ud800"), ("length: 1", "%ud800")],
)
def test_a_condition_on_an_odd_value_refuses_nothing_that_the_policy_without_it_would_allow(condition, value):
    rule = f"default: allow\nversion: 1\nrules: [{{id: r, action: allow, when: {{arg: x, {condition}}}}}]\n"
    assert proven(rule, "version: 1\ndefault: allow\n").answer == "no"
    call = Call("tools/call", "s", "a", "t", {"x": value}, history=Past())
    assert compile_sources((load_text(rule, "policy", None),)).decide(call).outcome is Outcome.ALLOW


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("pins: {unlisted: deny}", "pins: {unlisted: allow}"),
        ("pins: {drift: strict}", "pins: {drift: tolerant}"),
        ("rules: [{id: o, on: observed, action: deny, acts: [exec]}]", "rules: []"),
        (
            "rules: [{id: b, action: allow}]\nlimits: [{id: l, count: 1, within: 1h, per: rule}]",
            (
                "rules: [{id: a, action: allow}, {id: b, action: allow}]\n"
                "limits: [{id: l, count: 1, within: 1h, per: rule}]"
            ),
        ),
    ],
)
def test_what_else_stops_calls_is_never_proven_to_be_the_same(before, after):
    texts = [f"version: 1\ndefault: allow\n{text}\n" for text in (before, after)]
    assert proven(*texts).answer == "unknown"
    assert proven(texts[0], texts[0]).answer == "no"
