"""What a draft would change, or what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.console.draft_replay import MAX_DRAFT, try_draft
from proxy.core.event import CallRecord
from tests.support.console_fixture import POLICY

NOTHING: dict[str, object] = dict.fromkeys(CallRecord.__dataclass_fields__)
DRAFT = """\
version: 1
rules:
  - id: no-tmp
    action: deny
    tools: [read_file]
    when: {any: [{arg: path, path_under: [/tmp]}]}
    tests:
      - {call: {tool: read_file, arguments: {path: /tmp/x}}, expect: deny}
"""


def call(number: int, path: str, **fields: object) -> CallRecord:
    given: dict[str, object] = {
        "call_id": f"c{number}",
        "event_id": f"e{number}",
        "time": float(number),
        "method": "tools/call",
        "tool": "read_file",
        "agent": "bot",
        "server": "s",
        "decision": "allow",
        "reason": "default_allow",
        "arguments": {"path": path},
        "rules": (),
        "shadow_rules": (),
        "redactions": (),
    }
    return CallRecord(**(NOTHING | given | fields))  # type: ignore[arg-type]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return file


CALLS = [
    call(1, "/tmp/a"),
    call(2, "/home/b"),
    call(3, "/etc/c", decision="deny", reason="policy_denied", rule="no-system-files"),
]


def test_only_what_the_draft_changes_is_a_change(policy: Path) -> None:
    result = try_draft(policy, DRAFT, CALLS)
    assert result.problems == ()
    assert result.replay is not None
    assert result.replay.decided == 3
    ((change),) = result.replay.changes
    assert (change.call_id, change.was, change.now, change.now_rule) == ("c1", "allow", "deny", "no-tmp")
    assert len(result.tests) == 1
    assert result.failed == ()


def test_a_test_that_fails_is_told(policy: Path) -> None:
    result = try_draft(policy, DRAFT.replace("path: /tmp/x}", "path: /var/x}"), CALLS)
    assert [test.got for test in result.failed] == ["no_match"]


@pytest.mark.parametrize(
    ("draft", "part"),
    [
        ("", "draft.yaml"),
        ("version: 1\nrules: [{id: x, action: explode}]\n", "draft.yaml:2"),
        (DRAFT.replace("no-tmp", "no-danger"), "no-danger"),
        ("{", "draft.yaml:"),
        ("x" * (MAX_DRAFT + 1), "more than"),
        ("&a [*a]", "draft.yaml"),
    ],
)
def test_a_bad_draft_is_explained_and_changes_nothing(draft: str, part: str, policy: Path) -> None:
    before = policy.read_text()
    result = try_draft(policy, draft, CALLS)
    assert result.replay is None
    assert part in "\n".join(result.problems)
    assert "/tmp" not in "\n".join(result.problems)
    assert policy.read_text() == before
