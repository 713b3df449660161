"""The policy on disk: good, bad, and with a test that fails."""

from __future__ import annotations

from pathlib import Path

from proxy.doctor.policy import rules_and_tests
from proxy.system.package_data import policies_dir

FAILING = """
version: 1
rules:
  - {id: r, action: deny, tools: [x], tests: [{call: {tool: y, arguments: {}}, expect: deny}]}
"""


def test_a_policy_loads_and_its_tests_pass_or_not(tmp_path: Path) -> None:
    (good,) = rules_and_tests(policies_dir() / "default.yaml")
    assert good.state == "ok"
    (absent,) = rules_and_tests(tmp_path / "none.yaml")
    assert (absent.state, "policy check" in absent.mend) == ("fail", True)
    (tmp_path / "failing.yaml").write_text(FAILING)
    (failing,) = rules_and_tests(tmp_path / "failing.yaml")
    assert (failing.state, failing.said.split(",")[1]) == ("fail", " the first of rule r")
