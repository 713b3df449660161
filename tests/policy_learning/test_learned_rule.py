from proxy.core.model import Call
from proxy.policy.rule_tests import coverage, run_tests
from proxy.policy_learning.learned_rule import ToolCalls, compile_values, make_rule, near_misses
from proxy.policy_learning.names import as_glob


def calls(*arguments, tool="read_file"):
    found = ToolCalls("a", "s", "tools/call", tool, "allow")
    for number, one in enumerate(arguments):
        found.add(Call("tools/call", "s", "a", tool, one), f"id-{number}", float(number))
    return found


def test_a_rule_has_tests_from_calls_and_from_near_misses_and_they_pass():
    rule = make_rule([calls({"path": "/srv/a/1"}, {"path": "/srv/a/2"})], "learned")
    compiled = compile_values(rule.values)
    results = run_tests([compiled])
    assert all(result.passed for result in results)
    assert coverage([compiled], results)[0].complete
    missed = [test["call"]["arguments"] for test in rule.values["tests"] if test["expect"] == "no_match"]
    assert any(".." in arguments.get("path", "") for arguments in missed)


def test_evidence_names_the_first_and_the_last_calls():
    rule = make_rule([calls(*({"n": number} for number in range(50)))], "learned")
    found = rule.evidence()
    assert (found["calls"], found["first"], found["last"]) == (50, 0.0, 49.0)
    assert found["audit_ids"] == ["id-0", "id-1", "id-2", "id-3", "id-4", "id-47", "id-48", "id-49"]


def test_a_near_miss_that_the_rule_lets_through_is_no_test():
    rule = make_rule([calls({"text": "some words here"})], "learned")
    assert all(result.passed for result in run_tests([compile_values(rule.values)]))


def test_near_misses_change_one_place():
    sample = {"path": "/srv/x", "n": 1}
    for miss in near_misses(sample):
        assert len({key for key in {*sample, *miss} if sample.get(key) != miss.get(key)}) == 1


def test_names_are_globs_that_fit_themselves_alone():
    assert as_glob("a*[b]?") == "a[*][[]b][?]"
