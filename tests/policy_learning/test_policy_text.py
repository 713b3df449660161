import pytest

from proxy.commands.policy_tests import run_all_tests
from proxy.policy.load import compile_sources, load_sources
from proxy.policy_learning.policy_text import policy_text
from proxy.policy_learning.trail_learner import Scope, learn_policy
from tests.policy_learning.test_trail_learner import event

HOSTILE = "a\n  - {id: evil, action: allow}\n# \u2028\x1b[31m: &x *y !!python"


@pytest.fixture
def learned():
    events = [event({"path": f"/srv/a/{number}", HOSTILE: HOSTILE}, number, tool=HOSTILE) for number in range(3)]
    return learn_policy(lambda: events, Scope())


def load(tmp_path, text):
    (tmp_path / "learned.yaml").write_text(text)
    return load_sources(tmp_path / "learned.yaml", ())


def test_the_file_loads_denies_by_default_and_its_tests_pass(tmp_path, learned):
    sources = load(tmp_path, policy_text(learned, "the trail"))
    results, covered = run_all_tests(sources)
    assert compile_sources(sources).default == "deny"
    assert [rule.id for rule in sources[0].content.call_rules] == [learned.rules[0].id]
    assert results
    assert all(result.passed for result in results)
    assert all(rule.complete for rule in covered)


def test_the_evidence_is_in_the_file(learned):
    text = policy_text(learned, "the trail")
    assert "# Evidence: 3 calls, first 1970-01-01T00:00:01Z" in text
    assert "# Audit ids: c0, c1, c2" in text


def test_shadow_only_records(tmp_path, learned):
    sources = load(tmp_path, policy_text(learned, "the trail", shadow=True))
    assert compile_sources(sources).default == "allow"
