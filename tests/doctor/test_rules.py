"""The policy on disk: good, bad, and with a test that fails."""

from __future__ import annotations

from pathlib import Path

from proxy.doctor.rules import policy
from proxy.system.package_data import policies_dir

FAILING = """
version: 1
rules:
  - {id: r, action: deny, tools: [x], tests: [{call: {tool: y, arguments: {}}, expect: deny}]}
"""


def test_a_policy_loads_and_its_tests_pass_or_not(tmp_path: Path) -> None:
    (good,) = policy(policies_dir() / "default.yaml")
    assert good.state == "ok"
    (absent,) = policy(tmp_path / "none.yaml")
    assert (absent.state, "policy check" in absent.mend) == ("fail", True)
    (tmp_path / "failing.yaml").write_text(FAILING)
    (failing,) = policy(tmp_path / "failing.yaml")
    assert (failing.state, failing.said.split(",")[1]) == ("fail", " the first of rule r")
