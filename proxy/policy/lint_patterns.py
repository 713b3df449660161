"""Find patterns of a rule that can never match anything. Pure, no I/O."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from proxy.policy.agents import names
from proxy.policy.conditions import as_tuple, conditions_in
from proxy.policy.globs import compile_globs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.policy.rules import Rule

_METHODS: Final = (
    *("initialize", "ping", "server/discover", "subscriptions/listen", "logging/setLevel", "completion/complete"),
    *("tools/list", "tools/call", "prompts/list", "prompts/get", "resources/list", "resources/templates/list"),
    *("resources/read", "resources/subscribe", "resources/unsubscribe", "roots/list", "sampling/createMessage"),
    *("elicitation/create", "tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update", "response"),
    *("notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/message"),
    *("notifications/roots/list_changed", "notifications/tools/list_changed", "notifications/tasks/status"),
    *("notifications/prompts/list_changed", "notifications/resources/list_changed", "notifications/resources/updated"),
    # Messages between agents (A2A).
    *("message/send", "message/stream", "tasks/resubscribe", "agent/getAuthenticatedExtendedCard"),
    *(f"tasks/pushNotificationConfig/{verb}" for verb in ("set", "get", "list", "delete")),
    *("SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask"),
    *(f"{verb}TaskPushNotificationConfig" for verb in ("Create", "Get", "Delete")),
    *("ListTaskPushNotificationConfigs", "GetExtendedAgentCard"),
)
# What parts a command line into several: no single program has it among its words.
_JOINTS: Final = re.compile(r"[|;&<>]+")
_PORT: Final = re.compile(r"(?<!:)[^:\]]:\d+$")


def dead_patterns(rule: Rule) -> Iterator[str]:
    """Return what to say about each pattern of `rule` that can never match."""
    for pattern in rule.methods or ():
        if not any(map(compile_globs([pattern]), _METHODS)):
            yield f"methods: MCP has no method {pattern!r}; a call of a tool is tools/call"
    for field in ("servers", "tools", "agents"):
        for pattern in names(rule.agents) if field == "agents" else getattr(rule, field) or ():
            if pattern != pattern.strip():
                yield f"{field}: no name has blanks around it, like {pattern!r}"
    for condition in conditions_in(rule.when):
        for name, judge in _BY_OPERATOR.items():
            operands = as_tuple(getattr(condition, name) or [])
            yield from (f"{name}: {said}" for operand in operands if (said := judge(operand)))


def _dead_host(text: str) -> str | None:
    if "/" in text or " " in text or _PORT.search(text):
        return f"no host is called {text!r}; write the host alone, like example.com"
    return None


def _dead_root(text: str) -> str | None:
    return f"{text!r} is a URL; write the folder alone, like /etc" if "://" in text else None


def _dead_command(text: str) -> str | None:
    words = shlex.split(text)
    if any(map(_JOINTS.fullmatch, words)):
        return f"{text!r} is several programs; name one with its words, like 'curl --upload-file'"
    if "=" in words[0] or words[0].startswith("-"):
        return f"{words[0]!r} is no program; start with its name"
    return None


_BY_OPERATOR: Final = {
    "host_in": _dead_host,
    "command_host_in": _dead_host,
    "path_under": _dead_root,
    "command_path_under": _dead_root,
    "command": _dead_command,
}
