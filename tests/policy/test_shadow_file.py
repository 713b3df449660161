"""A file that only records denies nothing, whatever its rules say, and so does what it includes."""

from proxy.core.model import Call, EgressRequest, Outcome, PinRules
from proxy.policy.load import load_policy

STRICT = """
version: 1
default: deny
rules:
  - {id: no, action: deny, tools: [a]}
  - {id: two, action: two_phase, tools: [b]}
  - {id: hide, action: redact, detectors: [secrets], redact: deny}
egress:
  default: deny
  private: deny
  secrets: deny
  rules:
    - {id: not-there, action: deny, hosts: [example.com]}
    - {id: no-secrets, action: secrets, secrets: deny, hosts: [example.org]}
pins: {mode: enforce, hidden_characters: enforce}
labels: [{id: wiki, servers: [wiki], gives: private}]
flows: [{id: stays, from: private, to: {hosts: ["*"]}}]
limits: [{id: few, tools: [a], count: 1, within: 1m}]
incoming: [{id: orders, action: withhold}]
"""


def shadowed(tmp_path):
    (tmp_path / "strict.yaml").write_text(STRICT)
    (tmp_path / "watch.yaml").write_text("version: 1\nmode: shadow\ninclude: [strict.yaml]\n")
    return load_policy(tmp_path / "watch.yaml")


def test_calls_pass_and_what_would_have_stopped_them_is_recorded(tmp_path):
    policy = shadowed(tmp_path)
    decisions = [policy.decide(Call("tools/call", "s", "x", tool, {})) for tool in "abc"]
    assert [each.outcome for each in decisions] == [Outcome.ALLOW] * 3
    assert [each.shadow for each in decisions] == [("no",), ("two",), ()]
    assert {redaction.action for each in decisions for redaction in each.redactions} == {"report"}


def test_requests_pass_and_what_would_have_stopped_them_is_recorded(tmp_path):
    egress = shadowed(tmp_path).egress
    named = egress.decide(EgressRequest("example.com", 443, "GET"))
    inside = egress.decide(EgressRequest("10.0.0.1", 443, "GET"))
    secrets = egress.decide(EgressRequest("example.org", 443, "GET"))
    assert {each.outcome for each in (named, inside, secrets)} == {Outcome.ALLOW}
    assert named.shadow == ("not-there", "egress.default")
    assert inside.shadow == ("egress.private", "egress.default")
    assert [redaction.action for redaction in secrets.redactions] == ["report"]


def test_pins_are_recorded_only(tmp_path):
    assert shadowed(tmp_path).pins == PinRules("record", "record")


def test_flows_limits_and_rules_on_what_comes_in_are_recorded_only(tmp_path):
    policy = shadowed(tmp_path)
    modes = [flow.rule.mode for flow in policy.flows.flows]
    modes += [limit.limit.mode for limit in policy.limits.compiled] + [rule.mode for rule in policy.incoming.rules]
    assert modes == ["shadow"] * 3


def test_a_file_that_another_one_includes_in_force_is_in_force(tmp_path):
    shadowed(tmp_path)
    (tmp_path / "both.yaml").write_text("version: 1\ninclude: [watch.yaml, strict.yaml]\n")
    decision = load_policy(tmp_path / "both.yaml").decide(Call("tools/call", "s", "x", "a", {}))
    assert (decision.outcome, decision.rule) == (Outcome.DENY, "no")
