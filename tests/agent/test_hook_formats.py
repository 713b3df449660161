"""Clients' hooks, in the clients' own formats."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.agent.hook_formats import FORMATS, Answered, Asked, parse
from proxy.errors import ConfigError

# As the documentation of Claude Code's hooks has it.
CLAUDE = {
    "session_id": "abc123",
    "transcript_path": "/home/me/.claude/projects/x/transcript.jsonl",
    "cwd": "/home/me/project",
    "permission_mode": "default",
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "npm test", "description": "Run the tests", "timeout": 120000},
    "tool_use_id": "toolu_01ABC123",
}
CURSOR = {"conversation_id": "c1", "generation_id": "g1", "workspace_roots": ["/home/me/project"]}
DENIED = Answered(False, "policy_denied", "no-etc", "id-1", "Refused: no.")


@pytest.mark.parametrize(
    ("name", "sent", "asked"),
    [
        (
            "claude-code",
            CLAUDE,
            Asked("claude-code", "Bash", {**CLAUDE["tool_input"], "cwd": "/home/me/project"}, "abc123"),  # type: ignore[dict-item]
        ),
        (
            "claude-code",
            {**CLAUDE, "tool_name": "mcp__my_files__read__file", "tool_input": {"path": "x"}},
            Asked("my_files", "read__file", {"path": "x"}, "abc123"),
        ),
        (
            "cursor",
            {**CURSOR, "hook_event_name": "beforeShellExecution", "command": "ls", "cwd": "/p"},
            Asked("cursor", "Shell", {"command": "ls", "cwd": "/p"}, "c1"),
        ),
        (
            "cursor",
            {**CURSOR, "hook_event_name": "beforeReadFile", "file_path": "/p/x", "content": "text"},
            Asked("cursor", "Read", {"file_path": "/p/x"}, "c1"),
        ),
        (
            "cursor",
            {**CURSOR, "hook_event_name": "beforeMCPExecution", "tool_name": "q", "tool_input": '{"sql": "select 1"}'},
            Asked("cursor-mcp", "q", {"sql": "select 1"}, "c1"),
        ),
        (
            "cursor",
            {**CURSOR, "hook_event_name": "preToolUse", "tool_name": "Write", "tool_input": {"path": "x"}},
            Asked("cursor", "Write", {"path": "x"}, "c1"),
        ),
        ("plain", {"tool": "x"}, Asked("hook", "x", {})),
        (
            "plain",
            {"tool": "x", "server": "s", "agent": "a", "arguments": {"b": 1}},
            Asked("s", "x", {"b": 1}, None, "a"),
        ),
    ],
)
def test_what_a_client_sends_is_read_as_a_call(name: str, sent: dict[str, Any], asked: Asked) -> None:
    assert FORMATS[name].read(parse(json.dumps(sent))) == asked


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("claude-code", {**CLAUDE, "hook_event_name": "PostToolUse"}),
        ("claude-code", {key: value for key, value in CLAUDE.items() if key != "hook_event_name"}),
        ("claude-code", {key: value for key, value in CLAUDE.items() if key != "tool_name"}),
        ("claude-code", {**CLAUDE, "tool_name": ""}),
        ("claude-code", {**CLAUDE, "tool_name": ["Bash"]}),
        ("claude-code", {**CLAUDE, "tool_name": "mcp__only"}),
        ("claude-code", {**CLAUDE, "tool_name": "mcp____x"}),
        ("claude-code", {**CLAUDE, "tool_input": [1]}),
        ("claude-code", {**CLAUDE, "tool_input": "not json"}),
        ("cursor", {**CURSOR, "hook_event_name": "beforeShellExecution"}),
        ("cursor", {**CURSOR, "hook_event_name": "afterFileEdit", "file_path": "x"}),
        ("plain", {}),
        ("plain", {"tool": "x", "args": {}}),
        ("plain", {"tool": "x", "arguments": []}),
    ],
)
def test_what_is_not_as_documented_raises(name: str, sent: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        FORMATS[name].read(parse(json.dumps(sent)))


@pytest.mark.parametrize("text", ["", "{", "[]", "1", '{"tool": "a", "tool": "b"}', "[" * 100_000])
def test_what_is_no_object_raises(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text)


def test_claude_code_is_answered_as_documented() -> None:
    said, code = FORMATS["claude-code"].answer(DENIED)
    assert code == 0
    assert json.loads(said) == {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "Refused: no.",
        }
    }
    # "allow" would skip the person's own permissions.
    assert FORMATS["claude-code"].answer(Answered(True)) == ("", 0)


def test_cursor_is_answered_as_documented() -> None:
    said, code = FORMATS["cursor"].answer(DENIED)
    assert code == 0
    assert json.loads(said) == {"permission": "deny", "user_message": "Refused: no.", "agent_message": "Refused: no."}
    said, code = FORMATS["cursor"].answer(Answered(True))
    assert (json.loads(said), code) == ({"permission": "allow"}, 0)


def test_plain_says_all_and_exits_with_2() -> None:
    said, code = FORMATS["plain"].answer(DENIED)
    assert code == 2
    assert json.loads(said)["rule"] == "no-etc"
    assert FORMATS["plain"].answer(Answered(True))[1] == 0
