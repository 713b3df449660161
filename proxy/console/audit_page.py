"""The audit trail: verified, signed, exported, and the evidence of one call."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import time
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response, StreamingResponse

from proxy.audit.backlog import read_backlog
from proxy.audit.checkpoints import Checkpoint
from proxy.audit.export_form import COLUMNS, csv_cells, exported
from proxy.audit.pipeline import checkpoint_file, destination
from proxy.audit.signed_checkpoints import last_checkpoints, valid_checkpoints
from proxy.audit.signing_keys import AuditKeys
from proxy.console.call_filter import SPANS
from proxy.console.context import NavEntry, action, view
from proxy.console.evidence import evidence
from proxy.console.login_page import see_other
from proxy.console.security import NO_STORE, RefusedError
from proxy.console.verification import Verification
from proxy.core.approvals import Role
from proxy.core.event import Filter
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.routing import Route

    from proxy.audit.reader import AuditReader
    from proxy.console.context import Console
    from proxy.core.event import LogEntry

FORMS: Final = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
MAX_LISTED: Final = 12
EXPORT_ROWS: Final = 200  # events that are written at once
_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,200}")


class AuditPage:
    nav: NavEntry | None = NavEntry("/audit", "Audit", "u")

    def __init__(self, console: Console) -> None:
        self._console = console
        self.verification = Verification(console.settings, console.trail)

    def routes(self) -> list[Route]:
        return [
            view("/audit", self.show),
            action("/audit/verify", self.verify, Role.VIEWER),
            action("/audit/export", self.export, Role.VIEWER),
            view("/audit/evidence", self.evidence),
        ]

    async def show(self, request: Request) -> Response:
        settings = self._console.settings
        signed = await asyncio.to_thread(last_checkpoints, settings)
        values: dict[str, Any] = {
            "backlog": await asyncio.to_thread(read_backlog, settings.state_dir, time.time()),
            "store": destination(settings),
            "file": str(checkpoint_file(settings)),
            "checkpoints": [one for one in signed if isinstance(one, Checkpoint)][:MAX_LISTED],
            "broken": [one for one in signed if isinstance(one, str)][:MAX_LISTED],
            "progress": self.verification.progress,
            "spans": SPANS,
        }
        return self._console.renderer.page(request, "audit.html", values)

    async def verify(self, request: Request, _: Mapping[str, str]) -> Response:
        self.verification.begin(request.state.me.operator)
        return see_other("/audit")

    async def export(self, request: Request, form: Mapping[str, str]) -> Response:
        kind, span = form.get("form", ""), form.get("since", "")
        if kind not in FORMS or span not in ("", *SPANS):
            raise RefusedError(400, "bad_form", "An export is jsonl or csv, of one of the times offered.")
        now = time.time()
        where = Filter(since=now - SPANS[span]) if span else Filter()
        detail = {"operator": request.state.me.operator, "via": "console", "form": kind, "since": where.since}
        # Recorded first: nobody takes the trail away without a trace.
        await self._console.sink.record(AuditEvent(event_id=new_id(), kind="audit_exported", time=now, detail=detail))
        headers = {**NO_STORE, "Content-Disposition": f'attachment; filename="interlock-audit-{int(now)}.{kind}"'}
        return StreamingResponse(self._export(where, kind), media_type=FORMS[kind], headers=headers)

    async def _export(self, where: Filter, kind: str) -> AsyncIterator[bytes]:
        write, rows = _writer(kind), list[Any]()
        if kind == "csv":
            yield write([COLUMNS])
        async with self._console.trail.open() as reader:
            async for entry in reader.entries(where):
                rows.append(csv_cells(entry) if kind == "csv" else exported(entry))
                if len(rows) == EXPORT_ROWS:
                    yield write(rows)
                    rows = []
        yield write(rows)

    async def evidence(self, request: Request) -> Response:
        wanted = request.query_params.get("call", "").strip()
        if not _ID.fullmatch(wanted):
            raise RefusedError(404, "not_found", "There is no call with this id.")
        async with self._console.trail.open() as reader:
            entries = [entry for entry, _ in await reader.find_entries(wanted)]
            if not entries:
                raise RefusedError(404, "not_found", "There is no call with this id. It may have been pruned.")
            before = await _links_before(reader, entries)
        settings = self._console.settings
        signed = await asyncio.to_thread(valid_checkpoints, settings)
        made = evidence(wanted, entries, before, signed, AuditKeys(settings.state_dir).public(), time.time())
        name = re.sub(r"[^A-Za-z0-9-]", "_", wanted)
        headers = {**NO_STORE, "Content-Disposition": f'attachment; filename="evidence-{name}.json"'}
        return Response(json.dumps(made, indent=1), media_type="application/json", headers=headers)


async def _links_before(reader: AuditReader, entries: Sequence[LogEntry]) -> dict[tuple[str, int], str]:
    """Return the link of the event before each event, by writer and number."""
    chains, found = reader.chains(), dict[tuple[str, int], str]()
    await chains.heads()  # it learns there which log is of which writer
    for entry in entries:
        if entry.writer is not None and entry.seq is not None and entry.seq > 1:
            # "~" sorts behind every id: the page begins with the event before this one.
            for one in (await chains.page(entry.writer, (entry.seq - 2, "~", 0.0)))[:1]:
                if one.entry.seq == entry.seq - 1 and one.entry.chain is not None:
                    found[entry.writer, entry.seq - 1] = one.entry.chain
    return found


def _writer(kind: str) -> Callable[[Sequence[Any]], bytes]:
    def write(rows: Sequence[Any]) -> bytes:
        text = io.StringIO(newline="")
        if kind == "csv":
            csv.writer(text).writerows(rows)
        else:
            text.writelines(f"{json.dumps(row)}\n" for row in rows)
        return text.getvalue().encode()

    return write
