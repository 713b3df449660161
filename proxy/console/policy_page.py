"""The policy: its files and rules, how often each rule matched, and an editor that says what a change would do."""

from __future__ import annotations

import asyncio
import functools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from starlette.responses import JSONResponse, Response

from proxy.console.context import NavEntry, action, view
from proxy.console.draft_replay import DraftResult, try_file
from proxy.console.learning import SPANS as LEARN_SPANS
from proxy.console.learning import learn_draft
from proxy.console.login_page import see_other
from proxy.console.overview_page import SAMPLE, SPANS
from proxy.console.policy_editor import (
    MAX_TEXT,
    EditedFile,
    check_unchanged,
    find_file,
    hidden_lines,
    keep_version,
    read_files,
    replace_text,
    versions,
)
from proxy.console.pushed_history import pushed_steps
from proxy.console.rule_insert import with_rule
from proxy.console.rule_proposals_page import waiting_rules
from proxy.console.schema_completion import completion_table
from proxy.console.security import RefusedError
from proxy.core.approvals import Role
from proxy.core.event import Filter
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.errors import AuditUnavailableError, StoreUnavailableError
from proxy.policy.rules import PolicyFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.routing import Route

    from proxy.console.context import Console
    from proxy.console.policy_editor import Version
    from proxy.core.event import CallRecord
    from proxy.policy.decide import CompiledPolicy

REPLAYED: Final = 2000
MAX_CHANGES: Final = 6
MAX_LISTED: Final = 30
SPAN: Final = SPANS["24h"]


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule of the policy in force, and how often it matched."""

    id: str
    description: str
    action: str
    mode: str
    about: str
    hits: int


@functools.cache
def _completions() -> dict[str, Any]:
    return completion_table(PolicyFile.model_json_schema(by_alias=True))


class PolicyPage:
    nav: NavEntry | None = NavEntry("/policy", "Policy", "p")

    def __init__(self, console: Console) -> None:
        self._console = console
        self._turn = asyncio.Lock()
        self._schema = _completions()

    def routes(self) -> list[Route]:
        return [
            view("/policy", self.show),
            view("/policy/schema", self.schema),
            # A viewer may try a text: that changes nothing.
            action("/policy/check", self.check, Role.VIEWER),
            action("/policy/save", self.save, Role.ADMIN),
        ]

    @property
    def _pushed(self) -> bool:
        """Whether pushed versions count, and not the files that the editor shows."""
        return self._console.settings.policy_source == "pushed"

    async def schema(self, _: Request) -> Response:
        return JSONResponse(self._schema)

    async def show(self, request: Request) -> Response:
        query = request.query_params
        file = find_file(self._console.policy_path, query.get("file", ""))
        version = self._version(file, query.get("version", ""))
        async with self._turn:
            draft = await learn_draft(self._console.trail, query)
        text = version.text if version else draft.text if draft and draft.text else file.text
        said = "Saved. Workers load it within a second." if query.get("saved") else ""
        if proposal := query.get("proposal"):
            one = await self._console.rules.show(proposal)
            text = with_rule(file.text, one["text"])
            said = f"The rule {one['rule_id']} of {one['agent']} stands in the text below. It is not saved."
        result = await self._try(file, text)
        values: dict[str, Any] = {"version": version, "said": said, "rules": await self._rules(), "draft": draft}
        values["proposed"] = await waiting_rules(self._console)
        if self._pushed:
            values["steps"] = await pushed_steps(self._console.settings, self._console.trail)
        return self._page(request, file, text, result, values)

    async def check(self, request: Request, form: Mapping[str, str]) -> Response:
        file, text = self._read(form)
        return self._page(request, file, text, await self._try(file, text), {})

    async def save(self, request: Request, form: Mapping[str, str]) -> Response:
        file, text = self._read(form)
        if self._pushed:
            message = "The policy in force was pushed; this file does not count. Use interlock policy push."
            raise RefusedError(409, "policy_pushed", message)
        if file.hindrance:
            raise RefusedError(409, "policy_not_writable", file.hindrance)
        check_unchanged(file, form.get("base", ""))
        result = await self._try(file, text)
        if result.problems or result.failed:
            why = "Not saved: this is no valid policy." if result.problems else "Not saved: a test fails."
            return self._page(request, file, text, result, {"refused": why}, 422)
        if text != file.text:
            await self._replace(request, file, text)
        return see_other("/policy?" + urlencode({"file": file.name, "saved": 1}))

    async def _replace(self, request: Request, file: EditedFile, text: str) -> None:
        """Keep what the file was, record who changes it, and replace it, in this order. Raises RefusedError."""
        me = request.state.me
        changed = EditedFile(file.name, file.path, text, "")
        detail = {"operator": me.operator, "via": "console", "file": str(file.path)}
        detail |= {"before": file.digest, "after": changed.digest}
        try:
            await asyncio.to_thread(keep_version, self._console.trail.state_dir, file, me.operator, time.time())
            # Recorded first: no policy is in force that nobody answers for.
            await self._console.sink.record(_event("policy_saved", detail))
            await asyncio.to_thread(replace_text, file, text)
            await self._console.policy.reload()  # the console's own copy; workers see the file by themselves
        except (OSError, RefusedError) as error:
            self._console.sink.record_later(_event("policy_save_failed", detail))
            if isinstance(error, RefusedError):
                raise
            message = f"The file cannot be replaced: {error.strerror}. The old one stays."
            raise RefusedError(503, "policy_not_saved", message) from error

    def _read(self, form: Mapping[str, str]) -> tuple[EditedFile, str]:
        """Return the file that a form is about, and its text. Raises RefusedError."""
        text = form.get("text", "").replace("\r\n", "\n")
        if len(text) > MAX_TEXT:
            raise RefusedError(413, "policy_too_large", f"The text has more than {MAX_TEXT} characters.")
        if not form.get("file"):
            raise RefusedError(400, "bad_form", "The form names no file.")
        return find_file(self._console.policy_path, form["file"]), text

    def _version(self, file: EditedFile, wanted: str) -> Version | None:
        if not wanted:
            return None
        found = next((one for one in versions(self._console.trail.state_dir, file) if one.id == wanted), None)
        if found is None:
            raise RefusedError(404, "not_found", "This version of the file is not kept.")
        return found

    async def _try(self, file: EditedFile, text: str) -> DraftResult:
        """Check a text and decide recorded calls by it. One at a time: it takes a processor for a while."""
        async with self._turn:
            return await asyncio.to_thread(try_file, self._console.policy_path, file.name, text, await self._calls())

    async def _calls(self) -> Sequence[CallRecord]:
        try:
            async with self._console.trail.open() as reader:
                return await reader.calls(Filter(), REPLAYED)
        except (StoreUnavailableError, AuditUnavailableError):
            return ()  # a policy can be checked and mended while the store is down

    async def _rules(self) -> list[RuleRow]:
        starts = SPAN.starts(time.time())
        try:
            async with self._console.trail.open() as reader:
                events = await reader.sample(starts, SAMPLE // len(starts))
        except (StoreUnavailableError, AuditUnavailableError):
            events = []
        hits: dict[str, float] = {}
        for event in events:
            if event.kind == "decided":
                for rule in {*event.rules, *event.shadow_rules, event.rule or ""}:
                    hits[rule] = hits.get(rule, 0.0) + event.weight
        return _rows(self._console.policy.current(), hits)

    def _page(
        self,
        request: Request,
        file: EditedFile,
        text: str,
        result: DraftResult,
        values: Mapping[str, Any],
        status: int = 200,
    ) -> Response:
        shared: dict[str, Any] = {
            "file": file,
            "files": [one.name for one in read_files(self._console.policy_path)],
            "text": text,
            "result": result,
            "changed": text != file.text,
            "hidden": hidden_lines(text)[:MAX_CHANGES],
            "history": versions(self._console.trail.state_dir, file)[:MAX_LISTED],
            "problem": self._console.policy.problem,
            "in_force": self._console.policy.current().version[:12],
            "max_changes": MAX_CHANGES,
            "pushed": self._pushed,
            **dict.fromkeys(("version", "said", "refused", "rules", "steps", "draft", "proposed")),
            "spans": LEARN_SPANS,
        }
        return self._console.renderer.page(request, "policy.html", {**shared, **values}, status)


def _rows(policy: CompiledPolicy, hits: Mapping[str, float]) -> list[RuleRow]:
    rows = []
    for rule in policy.rules.values():
        globs = {name: getattr(rule, name) for name in ("tools", "servers", "agents")}
        named = [f"{name}: {', '.join(found)}" for name, found in globs.items() if found]
        about = "; ".join(named) or "every call"
        hit = round(hits.get(rule.id, 0))
        rows.append(RuleRow(rule.id, rule.description, rule.action, rule.mode, about, hit))
    return rows


def _event(kind: str, detail: dict[str, Any]) -> AuditEvent:
    return AuditEvent(event_id=new_id(), kind=kind, time=time.time(), detail=detail)
