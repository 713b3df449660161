"""The run file names the policy that all workers have. tests/runtime/test_supervisor.py has the rest of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from proxy.runtime.running_note import log_policy
from proxy.system.run_file import RunningProxy

NOW = RunningProxy(1, "127.0.0.1:1", "regular", "ca", "p.yaml", "v1", 0.0)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (NOW, []),
        (replace(NOW, policy_version="v2"), ["policy in force"]),
        (replace(NOW, policy_version="v2", policy_problem=None), ["policy in force"]),
    ],
)
def test_a_change_of_the_policy_is_logged_once(after: RunningProxy, said: list[str]) -> None:
    with capture_logs() as lines:
        log_policy(NOW, after)
        log_policy(after, after)
    assert [line["event"] for line in lines] == said


def test_a_policy_that_is_refused_is_an_error() -> None:
    with capture_logs() as lines:
        log_policy(NOW, replace(NOW, policy_problem="line 3: no"))
    assert [line["log_level"] for line in lines] == ["error"]
    assert "line 3: no" in lines[0]["event"]
