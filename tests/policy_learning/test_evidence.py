from proxy.policy_learning.evidence import Evidence, told


def test_the_first_and_the_last_calls_are_named_however_many_there_are():
    evidence = Evidence()
    for number in range(100):
        evidence.add(f"id-{number}", float(number))
    assert evidence.audit_ids == ["id-0", "id-1", "id-2", "id-3", "id-4", "id-97", "id-98", "id-99"]
    assert (evidence.count, evidence.first, evidence.last) == (100, 0.0, 99.0)


def test_several_are_told_together():
    one, other = Evidence(), Evidence()
    one.add("b", 5.0)
    other.add("a", 3.0)
    assert told([one, other]) == {"calls": 2, "first": 3.0, "last": 5.0, "audit_ids": ["b", "a"]}
