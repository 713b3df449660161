"""What clients' hooks ask and how they are answered, in each client's own format. Pure.

A client runs a hook before it uses one of its own tools, gives it the call as JSON on stdin, and obeys its answer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proxy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

# Claude Code and Cursor: 0 reads the answer on stdout, 2 blocks and shows stderr, and anything else lets the call pass.
BLOCK = 2


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that a client wants to make. The client itself is the server of its own tools."""

    server: str
    tool: str
    arguments: dict[str, Any]
    session: str | None = None
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """What policy says of a call. `text` says why, in words for the model and the person."""

    allowed: bool
    reason: str = ""
    rule: str | None = None
    audit_id: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class HookFormat:
    """How one client asks, and what it expects on stdout and as the exit code."""

    read: Callable[[dict[str, Any]], Asked]
    answer: Callable[[Answered], tuple[str, int]]


def parse(text: str) -> dict[str, Any]:
    """Parse what a client sent. Raises ConfigError."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"stdin is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError("stdin is not a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Which of two equal keys counts differs: the tool could get another one than was decided on.
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return value


def _text(value: dict[str, Any], key: str) -> str:
    found = value.get(key)
    if not isinstance(found, str) or not found:
        raise ConfigError(f"stdin has no {key!r} that is a string")
    return found


def _arguments(value: dict[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key, {})
    if isinstance(found, str):  # Cursor sends the input of an MCP tool as text
        found = parse(found)
    if not isinstance(found, dict):
        raise ConfigError(f"{key!r} on stdin is not an object")
    return found


def _in_folder(arguments: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    # `cat shadow` is another command in /etc: what is relative is judged with the folder that it is relative to.
    folder = value.get("cwd")
    return {**arguments, "cwd": folder} if isinstance(folder, str) and folder and "cwd" not in arguments else arguments


def _session(value: dict[str, Any], key: str) -> str | None:
    found = value.get(key)
    return found[:200] if isinstance(found, str) and found.isprintable() else None


def _from_claude(value: dict[str, Any]) -> Asked:
    if _text(value, "hook_event_name") != "PreToolUse":
        raise ConfigError(f"the hook is for PreToolUse, not for {value['hook_event_name']!r}")
    server, tool = "claude-code", _text(value, "tool_name")
    if tool.startswith("mcp__"):
        _, server, tool = [*tool.split("__", 2), "", ""][:3]
        if not server or not tool:
            raise ConfigError(f"{value['tool_name']!r} is no name of an MCP tool")
        return Asked(server, tool, _arguments(value, "tool_input"), _session(value, "session_id"))
    return Asked(server, tool, _in_folder(_arguments(value, "tool_input"), value), _session(value, "session_id"))


def _to_claude(answered: Answered) -> tuple[str, int]:
    # "allow" would skip the permissions that the person has set: to say nothing leaves them in force.
    if answered.allowed:
        return "", 0
    decision = {"permissionDecision": "deny", "permissionDecisionReason": answered.text}
    return json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}), 0


def _from_cursor(value: dict[str, Any]) -> Asked:
    event, session = _text(value, "hook_event_name"), _session(value, "conversation_id")
    match event:
        case "beforeShellExecution":
            return Asked("cursor", "Shell", _in_folder({"command": _text(value, "command")}, value), session)
        case "beforeReadFile":
            # Without the content: it is what the file says, not what is asked for.
            return Asked("cursor", "Read", {"file_path": _text(value, "file_path"), **_attached(value)}, session)
        case "beforeMCPExecution":
            return Asked("cursor-mcp", _text(value, "tool_name"), _arguments(value, "tool_input"), session)
        case "preToolUse":
            arguments = _in_folder(_arguments(value, "tool_input"), value)
            return Asked("cursor", _text(value, "tool_name"), arguments, session)
        case _:
            raise ConfigError(f"the hook is not for {event!r}")


def _attached(value: dict[str, Any]) -> dict[str, Any]:
    return {"attachments": value["attachments"]} if value.get("attachments") else {}


def _to_cursor(answered: Answered) -> tuple[str, int]:
    if answered.allowed:
        return json.dumps({"permission": "allow"}), 0
    said = {"user_message": answered.text, "agent_message": answered.text}
    return json.dumps({"permission": "deny", **said}), 0


def _from_plain(value: dict[str, Any]) -> Asked:
    unknown = value.keys() - {"server", "tool", "agent", "arguments", "session"}
    if unknown:
        raise ConfigError(f"{min(unknown)!r} on stdin is unknown; known are server, tool, agent, arguments, session")
    server, agent = (_text(value, key) if key in value else None for key in ("server", "agent"))
    return Asked(
        server or "hook", _text(value, "tool"), _arguments(value, "arguments"), _session(value, "session"), agent
    )


def _to_plain(answered: Answered) -> tuple[str, int]:
    shown = {"decision": "allow" if answered.allowed else "deny", "reason": answered.reason, "rule": answered.rule}
    shown |= {"audit_id": answered.audit_id, "message": answered.text}
    return json.dumps(shown), 0 if answered.allowed else BLOCK


FORMATS = {
    "claude-code": HookFormat(_from_claude, _to_claude),
    "cursor": HookFormat(_from_cursor, _to_cursor),
    "plain": HookFormat(_from_plain, _to_plain),
}
