"""Sessions of the SDK's client: what is raised inside them comes out as one message."""

from __future__ import annotations

import asyncio

import pytest

from proxy.commands.mcp_session import run_session
from proxy.errors import ConfigError, InterlockError


async def fail(error: Exception) -> None:
    async with asyncio.TaskGroup():
        raise error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TimeoutError(), "srv did not answer in time"),
        (ValueError("odd answer"), "srv cannot be called: odd answer"),
        (ValueError(), "srv cannot be called: ValueError"),
        (ConfigError("bad argument"), "bad argument"),
    ],
)
def test_an_error_inside_a_task_group_is_told_as_it_is(error: Exception, said: str) -> None:
    with pytest.raises(InterlockError, match=f"^{said}"):
        run_session(fail(error), "srv")
