"""Calls every tool of a stdio server in a sinkhole, and reports what it did beside what it declares."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from proxy.errors import ConfigError, ServerError, TracingError
from proxy.probe import findings, texts
from proxy.probe.canary import restore_documents
from proxy.probe.declared_scope import DeclaredScope, declare_call, declare_server, declare_tool
from proxy.probe.experiments import Answer, Planned, plan
from proxy.probe.fifo import reading
from proxy.probe.hostile import attempts, crowds, takes_sql
from proxy.probe.judgement import JudgedTool, ProbeLog, describe_server
from proxy.probe.mcp_client import McpClient, RequestRefusedError, RequestTimeoutError, ServerGoneError
from proxy.probe.observer import Observer
from proxy.probe.own_sources import own_sources
from proxy.probe.report import CallResult, ProbeReport, add_findings
from proxy.probe.rulebook import rulebook
from proxy.probe.second_start import list_tools_again
from proxy.probe.sinkhole import Sinkhole, environment, plan_sinkhole
from proxy.probe.source_words import source_ids, source_variables, source_words
from proxy.probe.synthesise import Input, synthesise
from proxy.probe.usage import Usage, judge_call, usage
from proxy.probe.waited_words import waited_words
from proxy.probe.workspace import Workspace, find_package_cache
from proxy.sandbox.server_process import ServerProcess, plan_launch, start_server
from proxy.trace.capability import Capability
from proxy.trace.normalise import LOOKS, TRACED
from proxy.trace.tamper_guard import find_tracer, tracer_state
from proxy.trace.tracer import options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from proxy.core.model import JsonObject
    from proxy.probe.baseline import ServerBaseline
    from proxy.probe.hostile import Bait
    from proxy.probe.observation_facts import ProbeObservation, RunContext

NETWORK = (Capability.NET_CONNECT, Capability.NET_DNS)
QUIET_SECONDS, SETTLE_LOOKS = 0.03, 40
LIST_SECONDS = 20.0
STOP_SECONDS = 2.0
READY_SECONDS = 30.0
type Failure = type[RequestRefusedError | RequestTimeoutError | ServerGoneError]
OUTCOMES: dict[Failure, str] = {RequestRefusedError: "refused", RequestTimeoutError: "timeout", ServerGoneError: "gone"}
# A tool that timed out so often is not called again: a server with many such tools would be probed for hours.
MAX_TIMEOUTS = 2


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """What to probe. `{home}` and so on in the command and the variables are folders of the canary home."""

    name: str
    command: tuple[str, ...]
    strace: str
    variables: dict[str, str] = field(default_factory=dict)
    repeats: int = 3  # how often a tool is called again with the same arguments
    call_seconds: float = 10.0
    start_seconds: float = 30.0
    state_dir: Path | None = None
    sources: tuple[str, ...] = ()  # folders and files with the values of credentials
    trace_file: Path | None = None  # keeps strace's lines
    hostile: bool = False  # whether inputs of a malicious caller are tried at the end
    planted: tuple[str, ...] = ()  # files in temporary folders that the server finds


@dataclass(frozen=True, slots=True)
class ProbeEvidence:
    """All that was observed, for whoever learns from it: paths are those that the server saw."""

    records: tuple[ProbeObservation, ...]
    calls: tuple[findings.ProbeCall, ...]
    context: RunContext
    startup: DeclaredScope
    roots: tuple[str, ...]
    command: tuple[str, ...]
    starter: str | None  # the program by which we start the server


@dataclass(slots=True)
class _Tool:
    definition: JsonObject
    scope: DeclaredScope
    results: list[CallResult] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.definition.get("name"))

    @property
    def hangs(self) -> bool:
        return sum(result.outcome == "timeout" for result in self.results) >= MAX_TIMEOUTS


class Probe:
    """One run. `progress` is called with the number of calls made, their total, and the tool."""

    def __init__(self, plan: ProbePlan, progress: Callable[[int, int, str], None] = lambda *_: None) -> None:
        self._progress = progress
        self._asked = plan
        self._workspace = workspace = Workspace()
        variables = {name: workspace.fill_in(value) for name, value in plan.variables.items()}
        self._plan = replace(plan, command=tuple(map(workspace.fill_in, plan.command)), variables=variables)
        self._run = workspace.run
        self._context = workspace.context()
        self._observer = Observer(self._context, workspace.cwd, time.time, frozenset({str(workspace.run / "stderr")}))
        declared = declare_server(self._plan.command, variables, workspace.cwd)
        self._scope = replace(declared, granted=(*declared.granted, *workspace.roots))
        self._cache = find_package_cache(self._plan.command, os.environ, Path.home())
        self._startup = replace(self._scope, granted=(*self._scope.granted, *self._cache.folders))
        self._log = ProbeLog(self._context, self._startup, self._observer)
        self._bait = workspace.plant_bait() if plan.hostile else None
        self._kept_trace = _open_private(plan.trace_file) if plan.trace_file else None
        self._half_note = b""
        self._ready = asyncio.Event()
        self._setpriv = shutil.which("setpriv")
        self._tracer = 0
        self._pid = 0
        self._usage = Usage()
        self._said = ""  # by the last call
        self._stuck = False  # whether the server answers nothing any more, though it runs
        self._judged: tuple[JudgedTool, ...] = ()
        self._stand_in: Probe | None = None
        self.setting = ""  # what is different from the probe that was asked for, in words

    async def run(self, known: ServerBaseline | None = None) -> ProbeReport:
        """Probe, and compare with what is `known`.

        Raises StartError where there is no such program, ServerError where it does not speak MCP, else TracingError.
        """
        try:
            report = await self._watch(known)
        except ServerError as error:
            # Many servers end at once without a token. Whatever is in it, they show then what they do.
            wanted = self._plan.hostile and not self._log.calls
            another = self._equipped_probe(hostile=True, told=str(error)) if wanted else None
            if another is None:
                raise
            report = await another.run(known)
            self._stand_in = another
            return report
        finally:
            self._workspace.remove()
            if self._kept_trace is not None:
                self._kept_trace.close()
        another = self._equipped_probe(hostile=False) if self._plan.hostile else None
        with contextlib.suppress(ServerError, TracingError):
            return report if another is None else add_findings(report, (await another.run()).findings, another.setting)
        return report

    def _equipped_probe(self, *, hostile: bool, told: str = "") -> Probe | None:
        """Return a probe with the variables and temporary files that the server waits for; None if there are none.

        Where it has `told` what it misses, with that variable alone: not all of them go together.
        """
        sources = own_sources(self._observer.code_read(), self._plan.command)
        given = environment(self._workspace.home.path, self._run, self._variables(), "")
        waited = {name: value for name, value in source_variables(sources).items() if name not in given}
        waited = {name: value for name, value in waited.items() if name in told} or waited
        files = self._sought_files()
        if not waited and (hostile or not files):
            return None
        variables = self._asked.variables | waited
        plan = replace(self._asked, variables=variables, planted=files, hostile=hostile, trace_file=None)
        probe = Probe(plan if hostile else replace(plan, repeats=0))
        settings = [f"with {', '.join(sorted(waited))} set"] if waited else []
        settings += [f"where {', '.join(files)} is"] if files else []
        probe.setting = f"Only {' and '.join(settings)}."
        return probe

    def _sought_files(self) -> tuple[str, ...]:
        """Return the temporary files that honest calls looked for, though no arguments named them."""
        # A text of the source, or of a malicious caller, may be a path too.
        named = {path for call in self._log.calls[: self._log.honest] for path in call.scope.named}
        missed = self._observer.missed.items()
        return tuple(path for path, call in missed if call < self._log.honest and path not in named)

    def _variables(self) -> dict[str, str]:
        return dict([self._workspace.home.variable]) | (self._cache.variables or {}) | self._plan.variables

    @property
    def evidence(self) -> ProbeEvidence:
        """What was observed; complete once `run` has returned."""
        if self._stand_in is not None:
            return self._stand_in.evidence
        return ProbeEvidence(
            tuple(self._log.honest_records()),
            tuple(self._log.calls),
            self._context,
            self._startup,
            self._workspace.roots,
            self._plan.command,
            self._setpriv,
        )

    async def _watch(self, known: ServerBaseline | None) -> ProbeReport:
        program = plan_launch(self._plan.command, os.environ).program
        sinkhole = self._sinkhole(program, self._run)
        planned = plan_sinkhole(sinkhole)
        trace = self._run / "trace"
        os.mkfifo(trace, 0o600)
        with reading(trace, self._feed_trace), reading(sinkhole.file("notes"), self._take_notes):
            server = await start_server(planned)
            try:
                await self._wait_until_ready(server, sinkhole)
                described, listed, problem = await self._converse(server, sinkhole)
            finally:
                await server.clean_up()
        if self._plan.hostile and problem is None:
            second = self._sinkhole(program, self._workspace.second_run())
            again = await list_tools_again(second, self._workspace.roots, self._plan.start_seconds)
            self._log.later.append(("after a second start", again))
        return self._log.report(described, listed, self._judged, known, problem, starter=self._setpriv)

    def _sinkhole(self, program: str, run: Path) -> Sinkhole:
        cache = self._cache
        setpriv = self._setpriv
        # strace keeps its capabilities, to trace a server that is root inside; the server itself gets none.
        dropping = (setpriv, *("--bounding-set=-all", "--inh-caps=-all", "--")) if setpriv else ()
        tracing = (self._plan.strace, *options((*TRACED, *LOOKS)), "-o", str(run / "trace"), "--")
        return Sinkhole(
            str(run),
            str(self._workspace.home.folder),
            (*tracing, *dropping, program, *self._plan.command[1:]),
            environment(self._workspace.home.path, run, self._variables(), os.environ.get("PATH", os.defpath)),
            self._workspace.cwd,
            str(Path.home()),
            str(self._plan.state_dir) if self._plan.state_dir else None,
            self._plan.sources,
            copies=cache.folders,
            drops=bool(dropping),
            home_path=str(self._workspace.home.path),
            planted=self._plan.planted,
        )

    def _feed_trace(self, data: bytes) -> None:
        (self._run / "trace").unlink(missing_ok=True)  # strace has it open: nobody else can open it by its name now
        if self._kept_trace is not None:
            self._kept_trace.write(data)
        self._observer.feed(data)

    def _take_notes(self, data: bytes) -> None:
        *lines, self._half_note = (self._half_note + data).split(b"\n")
        for line in lines:
            note = None
            with contextlib.suppress(ValueError):
                note = json.loads(line)
            if isinstance(note, dict):
                if note.get("kind") == "ready":
                    self._ready.set()
                self._observer.note(note)

    async def _wait_until_ready(self, server: ServerProcess, sinkhole: Sinkhole) -> None:
        ready, ended = asyncio.create_task(self._ready.wait()), asyncio.create_task(server.ended())
        try:
            await asyncio.wait([ready, ended], timeout=READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
            ended.cancel()
        if not self._ready.is_set():
            problem = sinkhole.file("problem").read_text() if sinkhole.file("problem").exists() else ""
            raise TracingError(
                f"this system refuses a sinkhole ({problem or 'it did not get ready'}); a probe needs user and network "
                "namespaces: kernel.unprivileged_userns_clone=1 and no AppArmor restriction of them, or root"
            )

    async def _converse(
        self, server: ServerProcess, sinkhole: Sinkhole
    ) -> tuple[JsonObject, list[JsonObject], str | None]:
        """Return what the server is, what tools it has, and why not all of them were called, if so."""
        client = McpClient(server.read, server.write, self._workspace.roots)
        try:
            info = await client.open_session(self._plan.start_seconds)
            listed = await self._list(client, info)
            # Only now: before the server runs, nothing is traced that would show who traces it.
            self._tracer = find_tracer(server.pid)
            tools = [_Tool(each, declare_tool(self._scope, each)) for each in listed["tools"]]
            self._pid = server.pid
            problem = await self._exercise(client, tools)
            self._log.honest = self._log.judged = len(self._log.calls)
            if self._bait is not None and problem is None:
                await self._tempt(client, tools)
                self._log.judged = len(self._log.calls)
                await self._attack(client, tools, self._bait)
            self._log.later.append(("after its calls", await _again(client)))
        except tuple(OUTCOMES) as error:
            raise await self._explain(server, sinkhole, error) from error
        finally:
            await client.close()
        self._observer.begin(None)  # what it does from now on belongs to no call, though it may be the worst of all
        ending = await server.stop(STOP_SECONDS)
        await self._settle()
        if problem is not None:
            problem = f"{problem}; the server ended with exit code {ending}{sinkhole.stderr_end()}"
        described = describe_server(self._plan.name, self._plan.command, info, listed)
        self._judged = tuple(JudgedTool(each.name, each.scope, tuple(each.results)) for each in tools)
        return described, listed["tools"], problem

    async def _explain(self, server: ServerProcess, sinkhole: Sinkhole, error: Exception) -> ServerError | TracingError:
        """Return the error for a server that does not answer, with the end of its stderr."""
        stderr = sinkhole.stderr_end()
        try:
            code = await asyncio.wait_for(server.ended(), STOP_SECONDS)
        except TimeoutError:
            return ServerError(f"the server is running, but {error}{stderr}")
        if not self._observer.reader.lines:  # strace's failure, not the server's: it never ran
            return TracingError(f"strace cannot trace in a namespace here{stderr}")
        return ServerError(f"the server ended with exit code {code} before it was done{stderr}")

    async def _list(self, client: McpClient, info: JsonObject) -> dict[str, list[JsonObject]]:
        able = info.get("capabilities")
        offered = able if isinstance(able, dict) else {}
        found: dict[str, list[JsonObject]] = {"tools": await client.list_all("tools/list", "tools", LIST_SECONDS)}
        for key in ("resources", "prompts"):
            found[key] = await client.list_all(f"{key}/list", key, LIST_SECONDS) if key in offered else []
        await self._settle()
        return found

    async def _exercise(self, client: McpClient, tools: Sequence[_Tool]) -> str | None:
        """Call every tool with every input, and repeat; return why not all were called, if so."""
        inputs = {tool.name: self._inputs(tool) for tool in tools}
        total, made = sum(map(len, inputs.values())), 0
        for tool in tools:
            # What one tool deleted or overwrote must not make the next one fail.
            restore_documents(self._workspace.home)
            for each in inputs[tool.name]:
                self._progress(made, total, tool.name)
                made += 1
                if tool.hangs:
                    continue
                outcome = await self._call(client, tool, each)
                tool.results.append(CallResult(each.label, outcome))
                # After every call: a tool that stops strace would have the next ones unobserved, and so unreported.
                state = tracer_state(self._tracer)
                if state == "gone" and self._observer.saw_end:  # strace ends with the server, as it should
                    state = None
                if state is not None:
                    rule, seen = rulebook().get("tracer-tampering"), f"Seen: strace was {state} after a call"
                    self._log.tampered = findings.from_rule(rule, tool.name, str(Capability.KERNEL), seen)
                if outcome == "gone" or state is not None or self._stuck:
                    left = [other.name for other in tools if not other.results]
                    after = f"; not called: {', '.join(left)}" if left else ""
                    untraced = f"could not be traced any more (strace is {state})"
                    what = "ended" if outcome == "gone" else untraced if state else "stopped answering"
                    return f"the server {what} during a call of {tool.name}{after}"
        self._progress(total, total, "")
        return None

    def _inputs(self, tool: _Tool) -> list[Input]:
        """Return what a tool is called with: each input once, and then the fullest repeatedly."""
        # Repeated, because a malicious tool behaves well at first: what differs later is a finding.
        inputs = list(synthesise(tool.definition, self._workspace.samples()))
        fullest = max(inputs, key=lambda each: len(each.arguments), default=Input("none", {}))
        return [*(inputs or [fullest]), *[fullest] * self._plan.repeats]

    async def _tempt(self, client: McpClient, tools: Sequence[_Tool]) -> None:
        """Call every tool with words that hidden deeds wait for."""
        sources = own_sources(self._observer.code_read(), self._plan.command)
        for tool in tools:
            restore_documents(self._workspace.home)
            words = source_words(sources, tool.name)
            for each in waited_words(tool.definition, self._workspace.samples(), words):
                if not tool.hangs and await self._ends_it(client, tool, each):
                    return

    async def _attack(self, client: McpClient, tools: Sequence[_Tool], bait: Bait) -> None:
        """Call every tool as a malicious caller would. A server that ends by that is not probed further."""
        samples = self._workspace.samples()
        sql = any(takes_sql(tool.definition) for tool in tools)
        for tool in tools:
            restore_documents(self._workspace.home)
            for each in attempts(tool.definition, samples, bait, sql=sql):
                if tool.hangs:
                    break
                self._log.attempts[len(self._log.calls)] = each
                if await self._ends_it(client, tool, Input(each.label, each.arguments)):
                    return
        if await self._experiment(client, tools, sql=sql, last=False):
            return
        # Last: what uses up the machine may leave no server for others to be tried on.
        for tool in tools:
            for crowd in crowds(tool.definition, samples):
                if not tool.hangs and await self._ends_it(client, tool, crowd):
                    return
        await self._experiment(client, tools, sql=sql, last=True)

    async def _experiment(self, client: McpClient, tools: Sequence[_Tool], *, sql: bool, last: bool) -> bool:
        """Make the experiments that suit each tool; return whether the server has ended."""
        ids = source_ids(own_sources(self._observer.code_read(), self._plan.command))
        samples = self._workspace.samples()
        # What another machine would answer nobody answers here: there is nothing to compare.
        connecting = self._connecting()
        for tool in (each for each in tools if each.name not in connecting):
            restore_documents(self._workspace.home)
            said = [each.text for each in self._log.texts if self._log.calls[each.call].tool == tool.name]
            for planned in plan(tool.definition, samples, said, ids, sql=sql):
                if planned.experiment.last is last and not tool.hangs and await self._try(client, tool, planned):
                    return True
        await self._settle()
        return False

    def _connecting(self) -> set[str]:
        """Return the tools that honest calls led to another machine."""
        calls = (each.call for each in self._log.honest_records() if each.observation.capability in NETWORK)
        return {self._log.calls[call].tool for call in calls if call is not None}

    async def _try(self, client: McpClient, tool: _Tool, planned: Planned) -> bool:
        """Make one experiment, and return whether it was the last answer of the server."""
        trial = planned.experiment.trial(planned.parameter)
        try:
            value = next(trial)
            while (arguments := planned.put(value)) is not None and not tool.hangs:
                before = self._usage.cpu
                # Only its answer counts here: what it does meanwhile belongs to no call that is judged by its acts.
                if await self._ends_it(client, tool, Input(planned.experiment.label, arguments), settled=False):
                    return True
                value = trial.send(Answer(self._said, self._usage.cpu - before))
        except StopIteration as done:
            self._log.proved += [(tool.name, planned, done.value)] if done.value is not None else []
        return False

    async def _ends_it(self, client: McpClient, tool: _Tool, each: Input, *, settled: bool = True) -> bool:
        """Call a tool, and return whether that was the last answer of the server."""
        outcome = await self._call(client, tool, each, settled=settled)
        tool.results += [CallResult(each.label, outcome)] if outcome == "timeout" else []
        return outcome == "gone" or self._stuck

    async def _call(self, client: McpClient, tool: _Tool, each: Input, *, settled: bool = True) -> str:
        key = json.dumps(each.arguments, sort_keys=True, default=str)
        self._observer.begin(len(self._log.calls))
        scope = declare_call(tool.scope, each.arguments, self._workspace.cwd)
        self._log.calls.append(findings.ProbeCall(tool.name, each.label, key, scope))
        try:
            params = {"name": tool.name, "arguments": each.arguments}
            result = await client.request("tools/call", params, self._plan.call_seconds)
            outcome = "error" if result.get("isError") is True else "ok"
            self._said = texts.result_text(result)
            self._log.texts.append(texts.CallText(len(self._log.calls) - 1, self._said))
        except tuple(OUTCOMES) as error:
            outcome, self._said = OUTCOMES[type(error)], str(error)
        self._log.asked += [texts.CallText(len(self._log.calls) - 1, text) for text in client.take_asked()]
        if settled:
            await self._settle()
        self._note_usage(tool.name, timed_out=outcome == "timeout")
        # Else each call after it would time out as well, and be blamed for what the server is still busy with.
        self._stuck = outcome == "timeout" and not await self._answers(client)
        return outcome

    async def _answers(self, client: McpClient) -> bool:
        """Return whether the server still answers, or has ended, which the next call tells."""
        try:
            await client.request("ping", {}, self._plan.start_seconds)
        except RequestTimeoutError:
            return False
        except (RequestRefusedError, ServerGoneError):
            return True
        return True

    def _note_usage(self, tool: str, *, timed_out: bool) -> None:
        before, self._usage = self._usage, usage(self._pid)
        what = judge_call(before, self._usage, self._plan.call_seconds, timed_out=timed_out)
        if what is not None:
            self._log.used.setdefault(tool, what)

    async def _settle(self) -> None:
        """Wait until strace pauses: what a call did must be read before the next call begins."""
        began = time.time()
        for _ in range(SETTLE_LOOKS):
            await asyncio.sleep(QUIET_SECONDS / 3)
            if time.time() - max(began, self._observer.last) >= QUIET_SECONDS:
                return


async def _again(client: McpClient) -> list[JsonObject]:
    """Return the tools once more; none where the server has ended, or does not answer."""
    with contextlib.suppress(*OUTCOMES):
        return await client.list_all("tools/list", "tools", LIST_SECONDS)
    return []


def _open_private(path: Path) -> BinaryIO:
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
