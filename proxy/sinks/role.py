"""What a sink is: the role that every kind has, and that the contract tests of tests/sinks hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from proxy.errors import InterlockError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.event import LogEntry, Written


class SinkError(InterlockError):
    """A sink did not take a batch; it is tried again."""


class Sink(Protocol):
    """A place that takes the events of the local log.

    It may get an event again, in another batch than before: after a crash, a lost answer or a partial failure. In the
    end it has each once, by `event_id`; or by writer and number, which say the same. `write` is called for one batch at
    a time, in the order of each log; a batch that was consumed from a stream may hold events of several logs.
    """

    batch: int  # the most events that one `write` gets
    linger: float  # seconds to wait for a batch to fill; 0: none

    async def write(self, entries: Sequence[LogEntry]) -> Written:
        """Return once the batch is durable where it went; events that can never be taken are its poison, by index.

        Raises whatever there is to raise where the batch, or part of it, was not taken: it comes again.
        """
        ...

    async def close(self) -> None: ...
