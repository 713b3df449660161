"""Values that only their server reads: cursors, task ids, request states. Masking one would break the protocol. Pure.

A server's `nextCursor` or `requestState` may be a signed token and look like a secret. It passes to the client as it
is. On the way back it passes only if that server issued it: anything else in its place is masked as any text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxy.wire.mcp_exchange import RELATED_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from proxy.core.model import Finding

type Steps = tuple[str | int, ...]

_OF_TASK = ("_meta", RELATED_TASK, "taskId")
_OF_RESULT: tuple[Steps, ...] = (("nextCursor",), ("requestState",), ("taskId",), ("task", "taskId"), _OF_TASK)
_OF_PARAMS: tuple[Steps, ...] = (("requestState",), ("taskId",), ("progressToken",), ("requestId",), _OF_TASK)
FROM_SERVER: tuple[Steps, ...] = (
    ("id",),
    *(("result", *steps) for steps in _OF_RESULT),
    *(("params", *steps) for steps in (*_OF_PARAMS, ("_meta", "progressToken"))),
)
FROM_CLIENT: tuple[Steps, ...] = (("cursor",), *_OF_PARAMS)
_MISSING = object()


def restore(
    before: Any,
    after: Any,
    found: tuple[Finding, ...],
    places: tuple[Steps, ...],
    may_pass: Callable[[str], bool],
) -> tuple[Any, tuple[Finding, ...]]:
    """Put back into `after`, the masked form of `before`, the opaque values that may pass, and drop their findings."""
    for steps in (*places, *_listed_tasks(before)):
        value = _at(before, steps)
        if isinstance(value, str) and value != _at(after, steps) and may_pass(value):
            after = _put(after, steps, value)
            found = tuple(finding for finding in found if finding.path != _path(steps))
    return after, found


def _listed_tasks(value: Any) -> Iterator[Steps]:
    listed = _at(value, ("result", "tasks"))
    for number in range(len(listed) if isinstance(listed, list) else 0):
        yield "result", "tasks", number, "taskId"


def _at(value: Any, steps: Steps) -> Any:
    for step in steps:
        if isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
            continue
        if not isinstance(value, dict) or step not in value:
            return _MISSING
        value = value[step]
    return value


def _put(value: Any, steps: Steps, inner: str) -> Any:
    """Return `value` with `inner` at a place; copies on the way, because a mask shares what it did not change."""
    if not steps:
        return inner
    step = steps[0]
    if isinstance(value, list) and isinstance(step, int):
        return [*value[:step], _put(value[step], steps[1:], inner), *value[step + 1 :]]
    if not isinstance(value, dict):
        return value  # the mask covers more than this value: then it stays
    return {**value, step: _put(value.get(step), steps[1:], inner)}


def _path(steps: Steps) -> str:
    """Return the path under which a redactor reports a finding at a place."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif "/" in step:
            path += f'["{step}"]'
        else:
            path += f".{step}" if path else step
    return path
