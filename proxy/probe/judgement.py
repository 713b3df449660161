"""What one probe saw, and the report that is made of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from proxy.probe import comparison, findings, texts
from proxy.probe.deceit import judge_deceit, judge_described_credentials
from proxy.probe.hostile_findings import judge_attempts, judge_experiments
from proxy.probe.observation_facts import note_run
from proxy.probe.report import ProbeReport, ToolReport, sum_up
from proxy.probe.rulebook import rulebook
from proxy.probe.usage import judge_usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from proxy.core.model import JsonObject
    from proxy.probe.baseline import ServerBaseline
    from proxy.probe.declared_scope import DeclaredScope
    from proxy.probe.experiments import Planned, Proved
    from proxy.probe.findings import ProbeCall, ProbeFinding
    from proxy.probe.hostile import Attempt
    from proxy.probe.observation_facts import ProbeObservation, RunContext
    from proxy.probe.observer import Observer
    from proxy.probe.report import CallResult
    from proxy.probe.rulebook import Rulebook
    from proxy.probe.texts import CallText

LEAKS = ("credential-shown", "own-limit-broken")


@dataclass(frozen=True, slots=True)
class JudgedTool:
    """A tool that was called: what it declares, and what became of the calls."""

    name: str
    scope: DeclaredScope
    results: tuple[CallResult, ...]


@dataclass(slots=True)
class ProbeLog:
    """All that was called and seen.

    Calls from number `honest` on hold words that hidden deeds wait for: they are judged, and no part of a profile.
    Those from number `judged` on are a malicious caller's.
    """

    context: RunContext
    startup: DeclaredScope
    observer: Observer
    calls: list[ProbeCall] = field(default_factory=list)
    texts: list[texts.CallText] = field(default_factory=list)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    proved: list[tuple[str, Planned, Proved]] = field(default_factory=list)  # by experiments, with the tool
    used: dict[str, str] = field(default_factory=dict)  # what a tool used up, in words
    asked: list[CallText] = field(default_factory=list)  # of the client's model or user, by the server
    later: list[tuple[str, list[JsonObject]]] = field(default_factory=list)  # when it was asked again, and its tools
    honest: int = 0
    judged: int = 0
    tampered: ProbeFinding | None = None

    def honest_records(self) -> list[ProbeObservation]:
        """Return what was observed while nobody was malicious."""
        return self._records(self.honest)

    def _records(self, until: int) -> list[ProbeObservation]:
        return [each for each in self.observer.records if each.call is None or each.call < until]

    def report(
        self,
        server: JsonObject,
        manifest: Sequence[JsonObject],
        tools: Sequence[JudgedTool],
        known: ServerBaseline | None,
        problem: str | None,
        *,
        starter: str | None,
    ) -> ProbeReport:
        """Judge, and compare with what is `known`. `starter` is the program by which the server was started."""
        rules, seen = rulebook(), self.observer
        seen.finish()
        note_run(seen.records, self.context)
        whose = self._by_tool(tools, starter)
        profiles = {name: comparison.profile(records, self.context) for name, records in whose.items()}
        networked = {tool.name for tool in tools if tool.scope.network}
        found = [
            *comparison.judge_manifest(manifest, known.tools if known else None, rules),
            *texts.judge_definitions(manifest, rules),
            *judge_described_credentials(manifest, rules),
            *self._judge_later(manifest, rules),
            *self._judge(rules),
            *comparison.judge_profiles(profiles, known.profiles if known else None, rules, networked),
            *([self.tampered] if self.tampered else []),
            *self._doubts(),
        ]
        observed = {name: sum_up(records, self.context) for name, records in whose.items()}
        return ProbeReport(
            server=server,
            tools=tuple(ToolReport(each.name, each.scope, observed[each.name], each.results) for each in tools),
            startup=observed[""],
            findings=findings.order(findings.group(found)),
            trace={"lines": seen.reader.lines, "unparsed": seen.reader.unparsed, "dropped": seen.dropped},
            manifest=tuple(manifest),
            profiles=profiles,
            problem=problem,
        )

    def _by_tool(self, tools: Sequence[JudgedTool], starter: str | None) -> dict[str, list[ProbeObservation]]:
        """Return what was observed for each tool; for the server itself by the empty name."""
        whose: dict[str, list[ProbeObservation]] = {"": [], **{tool.name: [] for tool in tools}}
        for record in self.honest_records():
            if record.call is not None or record.observation.path != starter or starter is None:
                whose["" if record.call is None else self.calls[record.call].tool].append(record)
        return whose

    def _judge(self, rules: Rulebook) -> list[ProbeFinding]:
        calls, seen = self.calls[: self.judged], self.observer
        sought = [each for each in seen.sought if each.call is not None and each.call < self.judged]
        said = [each for each in self.texts if each.call < self.judged]
        records = [*self._records(self.judged), *sought]
        deceits = list(judge_deceit(said, calls, self.context, rules))
        return [
            *findings.judge(records, calls, self._outside_calls(), self.context, rules),
            *texts.judge_results(said, calls, self.context, rules),
            *texts.judge_asked(self.asked, self.calls, rules),
            *deceits,
            *self._leaks(deceits, rules),
            *judge_attempts(
                self.attempts,
                self.calls,
                seen.records,
                self.texts,
                rules,
                usual=(self.context.cwd, self.context.home),
            ),
            *judge_experiments(self.proved, rules),
            *judge_usage(self.used, self._started(), self._exhausted(), rules),
        ]

    def _leaks(self, known: Sequence[ProbeFinding], rules: Rulebook) -> list[ProbeFinding]:
        """Find credentials that only a malicious caller is shown: in an error, or in a record that nobody asked for."""
        # What runs commands shows a malicious caller whatever he asks for, and says so.
        late = [each for each in self.texts if each.call >= self.judged and not self.calls[each.call].scope.executes]
        found = judge_deceit(late, self.calls, self.context, rules)
        before = {(each.tool, each.rule) for each in known}
        return [each for each in found if each.rule in LEAKS and (each.tool, each.rule) not in before]

    def _judge_later(self, manifest: Sequence[JsonObject], rules: Rulebook) -> list[ProbeFinding]:
        """Judge what the server said of its tools when it was asked again, as far as that is new."""
        found: list[ProbeFinding] = []
        for when, tools in self.later:
            found += comparison.judge_meanwhile(manifest, tools, when, rules)
            found += texts.judge_definitions([tool for tool in tools if tool not in manifest], rules)
        return list({(each.rule, each.tool): each for each in reversed(found)}.values())

    def _outside_calls(self) -> DeclaredScope:
        """Return what is declared for start-up and end: after hostile calls, also the hosts that those named."""
        # A call that took too long goes on after the last one, and is nobody's then.
        named = frozenset(host for call in self.calls[self.honest :] for host in call.scope.hosts)
        return replace(self.startup, granted_hosts=self.startup.granted_hosts | named)

    def _started(self) -> dict[str, int]:
        """Return the most threads and processes that one call of each tool started."""
        most: dict[str, int] = {}
        for call, count in self.observer.started.items():
            if call is not None:
                tool = self.calls[call].tool
                most[tool] = max(most.get(tool, 0), count)
        return most

    def _exhausted(self) -> dict[str, str]:
        return {self.calls[call].tool: what for call, what in self.observer.exhausted.items() if call is not None}

    def _doubts(self) -> list[ProbeFinding]:
        seen = self.observer
        if not (seen.reader.unparsed or seen.dropped) and seen.reader.lines:
            return []
        unread = f"{seen.reader.unparsed} of {seen.reader.lines} lines unreadable"
        summary = f"Seen: {unread}, {seen.dropped} observations not stored"
        return [findings.from_rule(rulebook().get("trace-incomplete"), None, None, summary)]


def describe_server(
    name: str, command: Sequence[str], info: JsonObject, listed: dict[str, list[JsonObject]]
) -> JsonObject:
    """Return what a report says of the server itself."""
    server_info = info.get("serverInfo")
    return {
        "name": name,
        "command": list(command),
        "transport": "stdio",
        "info": server_info if isinstance(server_info, dict) else {},
        "resources": [str(each.get("uri")) for each in listed["resources"]],
        "prompts": [str(each.get("name")) for each in listed["prompts"]],
    }
