from proxy.policy.globs import compile_globs
from proxy.policy.text import fold
from proxy.policy_learning.name_classes import method_classes, name_classes, server_classes


def test_every_way_in_which_patterns_fit_a_name_and_its_lax_reading_is_there():
    patterns = ["read", "read_*", "write"]
    tests = [compile_globs([one]) for one in patterns]
    found = name_classes(patterns)
    assert found.complete
    ways = {tuple((test(name), test(fold(name).strip())) for test in tests) for name in found.names}
    for name in ("read", "READ", "read_x", "READ_x", "Write", "other", "reads", " write"):
        assert tuple((test(name), test(fold(name).strip())) for test in tests) in ways


def test_no_pattern_takes_the_name_that_stands_for_all_others():
    patterns = ["re*", "req*", "zz*", "zz-other", "~zz", "read"]
    tests = [compile_globs([one]) for one in patterns]
    ways = {
        tuple((test(name), test(fold(name).strip())) for test in tests)
        for name in name_classes(patterns).names  # complete or not
    }
    for name in ("none", "re-", "read ", "READ", "reAD", "reqs", "ZZ-other", "zz-", "zzQ"):
        assert tuple((test(name), test(fold(name).strip())) for test in tests) in ways, name
    assert "zz-other-0" in server_classes(["zz-other"]).names


def test_methods_of_a_session_are_cases_of_their_own():
    assert "tools/list" in method_classes(["tools/*"]).names
    assert len(method_classes(["*"]).names) < 16, "one for each way that patterns fit"


def test_other_globs_are_only_sampled():
    assert not name_classes(["*_x"]).complete
    assert "x_x" in name_classes(["*_x"]).names
    assert not server_classes(["localhost"]).complete
    assert server_classes(["files", "*"]).complete
