"""Checks whether the sinks of the settings can be reached. Nothing is written to them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from proxy.doctor.findings import CheckResult, fail, ok
from proxy.errors import InterlockError
from proxy.sinks.open_sinks import open_sink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.config import Settings
    from proxy.sinks.settings import SinkSettings

SECONDS = 10.0
MEND = "correct it in `sinks`; events wait in the local log meanwhile, and no call waits for a sink"


class Checkable(Protocol):
    """A sink that can be tried without writing to it."""

    async def check(self) -> str:
        """Return what was found. Raises SinkError."""
        ...

    async def close(self) -> None: ...


def reached(settings: Settings) -> Iterator[CheckResult]:
    """Yield a result for each sink that can be tried."""
    for one in settings.sinks:
        yield _try(one)


def _try(settings: SinkSettings) -> CheckResult:
    name = f"sink {settings.title}"
    try:
        sink = open_sink(settings)
        if not hasattr(sink, "check"):
            return ok(name, "its settings can be used; it was not tried")
        return ok(name, asyncio.run(_check(cast("Checkable", sink))))
    except InterlockError as error:
        return fail(name, str(error), MEND)
    except TimeoutError:
        return fail(name, f"no answer in {SECONDS:g} s", MEND)


async def _check(sink: Checkable) -> str:
    try:
        async with asyncio.timeout(SECONDS):
            return await sink.check()
    finally:
        await sink.close()
