"""What MCP messages carry for the other side: requests inside results, answers inside requests, task ids. Pure.

Up to 2025-11-25 a server sends its requests (sampling, elicitation, roots) as messages of their own. In 2026-07-28 they
stand in `inputRequests` of a result, of a task or of a notification, and the client's answers in `inputResponses`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.core.model import JsonObject

RELATED_TASK = "io.modelcontextprotocol/related-task"
TASK_METHODS = "tasks/"
_PARTS = ("result", "params", "error")
_BELOW = ("task", "result", "data")
# How the answers to a server's requests look: a member that only this one has, and the method that it answers.
_ANSWERS = (("action", "elicitation/create"), ("roots", "roots/list"), ("role", "sampling/createMessage"))


_PLAIN_ANSWER = frozenset(("jsonrpc", "id", "result"))
_PLAIN_RESULT = frozenset(("content", "structuredContent", "isError", "resultType", "_meta"))


def is_plain_result(message: JsonObject) -> bool:
    """Return whether a message is a tool's result and no more, as nearly all are: it carries nothing else inside."""
    result = message.get("result")
    return isinstance(result, dict) and result.keys() <= _PLAIN_RESULT and message.keys() <= _PLAIN_ANSWER


def method_of(message: JsonObject) -> str | None:
    """Return the method of a server's message; also where only a case-insensitive client (Go's) would find one."""
    method = message.get("method")
    if method is None and "method" not in message:
        method = next((value for key, value in message.items() if key.casefold() == "method"), None)
    return method if isinstance(method, str) else None


def input_requests(message: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yield the method and parameters of each request that a server's message carries inside."""
    for holder in _holders(message):
        for key, requests in holder.items():
            if key.casefold() == "inputrequests":
                yield from _requests(requests)


def _holders(message: JsonObject) -> Iterator[JsonObject]:
    # The answer to a call, a task (`tasks/get`), a notification, and in each what wraps a task or its result.
    for part in _PARTS:
        holder = message.get(part)
        if isinstance(holder, dict):
            yield holder
            for name in _BELOW:
                if isinstance(inner := holder.get(name), dict):
                    yield inner


def _requests(requests: Any) -> Iterator[tuple[str, JsonObject]]:
    each = requests.values() if isinstance(requests, dict) else requests if isinstance(requests, list) else ()
    for request in each:
        if isinstance(request, dict) and (method := method_of(request)) is not None:
            params = request.get("params")
            yield method, params if isinstance(params, dict) else {}


def input_responses(params: JsonObject) -> Iterator[tuple[str | None, Any]]:
    """Yield each answer that a request carries to the server, and the method that it answers, as far as it shows."""
    responses = params.get("inputResponses")
    if responses is None:
        return
    each = responses.values() if isinstance(responses, dict) else responses
    for answer in each if isinstance(responses, dict | list) else (responses,):
        known = (method for member, method in _ANSWERS if isinstance(answer, dict) and member in answer)
        yield next(known, None), answer


def task_ids(message: JsonObject) -> list[str]:
    """Return the ids of the tasks that a server's message speaks of."""
    found: dict[str, None] = {}
    for holder in _holders(message):
        listed = holder.get("tasks")
        meta = holder.get("_meta")
        related = meta.get(RELATED_TASK) if isinstance(meta, dict) else None
        for task in (holder, related, *(listed if isinstance(listed, list) else ())):
            if isinstance(task, dict) and isinstance(task_id := task.get("taskId"), str):
                found[task_id] = None
    return list(found)
