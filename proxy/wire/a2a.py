"""The Agent2Agent protocol: its methods, its paths in plain HTTP, and agent cards. Pure.

Its JSON-RPC binding is read like MCP: the same strict reader, the same rules. Its binding in plain HTTP (`message:send`
and the like) has no envelope, so a message is made of the path and the body, and taken apart again before it leaves.
gRPC is not read.
"""

from __future__ import annotations

import functools
import posixpath
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from proxy.core.model import JsonObject, Kind, Message
from proxy.errors import WireError
from proxy.wire.content_coding import codings, decode_body
from proxy.wire.jsonrpc import parse_json

if TYPE_CHECKING:
    from collections.abc import Sequence

# Up to 0.3 methods have a slash; from 1.0 on they have the names of the gRPC service.
SLASHED: Final = frozenset(
    (
        *("message/send", "message/stream", "tasks/resubscribe", "agent/getAuthenticatedExtendedCard"),
        *(f"tasks/pushNotificationConfig/{verb}" for verb in ("set", "get", "list", "delete")),
    )
)
_PUSH: Final = "TaskPushNotificationConfig"
NAMED: Final = frozenset(
    (
        *("SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask"),
        *(f"Create{_PUSH}", f"Get{_PUSH}", f"List{_PUSH}s", f"Delete{_PUSH}", "GetExtendedAgentCard"),
    )
)
METHODS: Final = SLASHED | NAMED
CARD_METHODS: Final = frozenset(("agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"))
_CARDS: Final = re.compile(
    r"/\.well-known/agent(?:-card)?\.json$|/(?:extendedagentcard|v1/card|agent/authenticatedextendedcard)$"
)
_REST: Final = (
    (re.compile(r"/message:send$"), "message/send"),
    (re.compile(r"/message:stream$"), "message/stream"),
    (re.compile(r"/tasks/[^/]+:cancel$"), "tasks/cancel"),
    (re.compile(r"/tasks/[^/]+:(?:subscribe|resubscribe)$"), "tasks/resubscribe"),
    (re.compile(r"/tasks/[^/]+/pushnotificationconfigs$"), "tasks/pushNotificationConfig/set"),
)


@functools.lru_cache(maxsize=1024)
def _path(target: str) -> str:
    """Return the path of a target as the most lenient router compares it."""
    return posixpath.normpath("/" + unquote(unquote(target.partition("?")[0])).strip("/ ")).casefold()


def card_path(target: str) -> str | None:
    """Return the path of an agent card that a request asks for; None where it asks for something else."""
    path = _path(target)
    return path if _CARDS.search(path) else None


def rest_method(target: str) -> str | None:
    """Return the method that a request to this path calls, by its name in JSON-RPC; None where it calls none."""
    if ":" not in target and "%" not in target and "onfig" not in target.lower():
        return None
    path = _path(target)
    return next((method for pattern, method in _REST if pattern.search(path)), None)


def read_rest(method: str, body: bytes, encodings: Sequence[str], limit: int, message_id: str) -> Message:
    """Return the message that a request in plain HTTP makes. Raises WireError unless the body is one strict object."""
    applied = codings(encodings)
    value = parse_json(decode_body(body, applied, limit) if applied else body)
    if not isinstance(value, dict):
        raise WireError("not_an_object", "the body of an A2A request is an object")
    return Message(Kind.REQUEST, {"params": value}, method, message_id)


def is_rest(message: Message) -> bool:
    """Return whether a message was made of a request in plain HTTP: it has no envelope."""
    return message.kind is Kind.REQUEST and "jsonrpc" not in message.value


def looks_like_card(value: Any) -> bool:
    """Return whether a client may take a JSON value for an agent card."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return False
    # Skills with names and descriptions, and where to reach the agent: every version of the format has both.
    return isinstance(value.get("skills"), list) and not _REACHED.isdisjoint(value)


_REACHED: Final = frozenset(("url", "supportedInterfaces", "supported_interfaces", "capabilities", "protocolVersion"))


def rest_error(answer: JsonObject) -> JsonObject:
    """Return a refusal as a client of the binding in plain HTTP reads it."""
    error = answer.get("error", {})
    data = error.get("data", {})
    said = {"code": 403, "status": "PERMISSION_DENIED", "message": error.get("message", ""), "details": [data]}
    return {"error": said}
