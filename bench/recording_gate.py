"""The daemon with a gate that lets everything pass and does nothing but record it: what durable audit costs by itself.

`python bench/recording_gate.py up …` takes what `interlock up` takes. Each request waits until an event without
content is on disk, and a second one follows; both go to the store. For measuring only, as the empty gate is.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.empty_gate import as_it_came, serve
from proxy.core.interfaces import EventSink
from proxy.core.model import AuditEvent, Context, Verdict
from proxy.gate.gate import Gate


class RecordingGate(Gate):
    """Records, and lets everything pass."""

    def __init__(self, *, sink: EventSink, **others: Any) -> None:
        super().__init__(sink=sink, **others)
        self._sink = sink
        self.requests.inspect = self._inspect  # type: ignore[method-assign]

    async def _inspect(self, body: bytes, context: Context, *_: Any) -> Verdict:
        await self._sink.record(AuditEvent(kind="decided", time=time.time()))
        self._sink.record_later(AuditEvent(kind="completed", time=time.time()))
        return as_it_came(body, context)


if __name__ == "__main__":
    serve(RecordingGate)
