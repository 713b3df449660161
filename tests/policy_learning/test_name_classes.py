from proxy.policy.globs import compile_globs
from proxy.policy.text import fold
from proxy.policy_learning.name_classes import name_classes, server_classes


def test_every_way_in_which_patterns_fit_a_name_and_its_lax_reading_is_there():
    patterns = ["read", "read_*", "write"]
    tests = [compile_globs([one]) for one in patterns]
    found = name_classes(patterns)
    assert found.complete
    ways = {tuple((test(name), test(fold(name).strip())) for test in tests) for name in found.names}
    for name in ("read", "READ", "read_x", "READ_x", "Write", "other", "reads", " write"):
        assert tuple((test(name), test(fold(name).strip())) for test in tests) in ways


def test_other_globs_are_only_sampled():
    assert not name_classes(["*_x"]).complete
    assert "x_x" in name_classes(["*_x"]).names
    assert not server_classes(["localhost"]).complete
    assert server_classes(["files", "*"]).complete
