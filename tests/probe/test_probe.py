"""The probe on live servers: the honest come out clean, and each bad deed is found and blamed on who did it."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import ServerError, StartError
from proxy.probe import usage
from proxy.probe.baseline import ServerBaseline
from proxy.probe.probe import Probe, ProbePlan
from proxy.probe.report import ProbeReport
from tests.servers.deceiving import EXPECTED as DECEITS
from tests.servers.flawed import EXPECTED as FLAWS
from tests.servers.misbehaving import EXPECTED, KEYRING_VALUE
from tests.servers.waiting import EXPECTED as WAITS
from tests.support.harness import REPOSITORY
from tests.support.node_tools import MODULES, node
from tests.support.system_needs import needs, needs_namespaces

pytestmark = [needs("strace", "ip", "unshare"), needs_namespaces]

SERVERS = REPOSITORY / "tests" / "servers"
BIN = Path(sys.executable).parent


def probe(
    *command: str, known: ServerBaseline | None = None, progress: Any = lambda *_: None, **fields: Any
) -> ProbeReport:
    strace = shutil.which("strace")
    assert strace
    plan = ProbePlan("server", command, strace, **{"repeats": 1, "call_seconds": 5.0, **fields})

    async def run() -> ProbeReport:
        return await Probe(plan, progress).run(known)

    return asyncio.run(asyncio.wait_for(run(), 100))


def ours(name: str, *words: str, **fields: Any) -> ProbeReport:
    return probe(sys.executable, str(SERVERS / f"{name}.py"), *words, **fields)


def found(report: ProbeReport) -> dict[str | None, set[str]]:
    rules: dict[str | None, set[str]] = {}
    for each in report.findings:
        for tool in each.tools:
            rules.setdefault(tool, set()).add(each.rule)
    return rules


def test_a_malicious_caller_shows_what_an_honest_one_does_not() -> None:
    report = ours("careless", hostile=True, repeats=0)
    assert report.problem is None
    named = {each.tool: each.rule for each in report.findings if each.severity == "high"}
    assert named.keys() == {"find", "show_note"}, [each.data() for each in report.findings]
    assert found(report)["find"] == {"argument-executed"}
    assert found(report)["show_note"] == {"argument-evaluated", "argument-leads-out"}


def test_flaws_are_proved_and_the_same_tools_without_them_are_not_blamed() -> None:
    report = ours("flawed", hostile=True, repeats=0)
    assert report.problem is None
    assert found(report) == FLAWS, [each.data() for each in report.findings]
    careful = ours("flawed", "--careful", hostile=True, repeats=0)
    assert careful.problem is None
    assert found(careful) == {}, [each.data() for each in careful.findings]


def test_flaws_of_javascript_are_proved_and_the_same_tools_without_them_are_not_blamed() -> None:
    server = str(REPOSITORY / "tests" / "node" / "servers" / "flawed.mjs")
    report = probe(node(), server, hostile=True, repeats=0)
    assert found(report) == {"load_session": {"argument-pollutes"}, "render": {"argument-executed"}}
    assert found(probe(node(), server, "--careful", hostile=True, repeats=0)) == {}


def test_what_waits_for_a_word_changes_later_or_only_answers_is_found() -> None:
    report = ours("deceiving", hostile=True, repeats=3)
    assert report.problem is None
    assert found(report).keys() == DECEITS.keys(), [each.data() for each in report.findings]
    # Which of the two files about the machine's maker is there depends on the machine.
    assert all(rules & DECEITS[str(tool)] and rules <= DECEITS[str(tool)] for tool, rules in found(report).items())
    assert "fs.write" not in report.tools[[tool.name for tool in report.tools].index("profile")].observed


def test_what_waits_for_a_text_a_variable_or_a_file_is_found() -> None:
    report = ours("waiting", hostile=True, repeats=0)
    assert report.problem is None
    assert found(report) == WAITS, [each.data() for each in report.findings]
    stayed = {tool: each.message for each in report.findings for tool in each.tools if each.rule == "persistence"}
    told = "Only with NOTES_STAGE, NOTES_TOKEN set and where /tmp/.waiting-orchard/mark is."
    assert stayed["count"].endswith(told)
    assert stayed["order"].endswith(told)
    assert "Only" not in stayed["profile"]
    assert found(ours("waiting", repeats=0)) == {}


def test_a_server_that_ends_without_a_variable_of_its_source_is_started_with_it() -> None:
    report = ours("waiting", "--needs-token", hostile=True, repeats=0)
    assert report.problem is None
    assert found(report).keys() == WAITS.keys()
    with pytest.raises(ServerError, match="NOTES_TOKEN is not set"):
        ours("waiting", "--needs-token", repeats=0)


@pytest.fixture(scope="module")
def honest() -> ProbeReport:
    return ours("formatter")


def test_the_honest_formatter_is_clean_and_the_leaky_one_is_not(honest: ProbeReport) -> None:
    leaky = ours("formatter", "--leaky")
    assert honest.manifest == leaky.manifest
    assert found(honest) == {}
    assert honest.tools[0].observed == {}
    assert found(leaky) == {"format_note": {"canary-read", "canary-on-the-wire", "undeclared-egress"}}
    assert {each.severity for each in leaky.findings} == {"high"}
    wire = next(each for each in leaky.findings if each.rule == "canary-on-the-wire")
    assert "~/.ssh/id_rsa" in wire.message
    assert any("POST /notes" in line for each in leaky.findings for line in each.evidence)
    assert all(each.evidence for each in leaky.findings)


def test_every_bad_deed_is_found_by_its_rule_and_nobody_else_is_blamed() -> None:
    report = ours("misbehaving", repeats=2)
    assert report.problem is None
    assert found(report) == {tool: rules for tool, rules in EXPECTED.items() if rules}
    assert sum(bool(rules) for rules in EXPECTED.values()) >= 50
    assert report.trace["unparsed"] == report.trace["dropped"] == 0
    assert KEYRING_VALUE not in json.dumps(report.data())


def test_a_server_that_turned_bad_is_found_by_comparison(honest: ProbeReport) -> None:
    tools = {"format_note": {**honest.manifest[0], "description": "Formats."}}
    report = ours("formatter", "--leaky", repeats=0, known=ServerBaseline(tools, honest.profiles))
    assert found(report)["format_note"] >= {"manifest-changed", "behaviour-changed"}


def test_a_server_that_stays_the_same_is_not(honest: ProbeReport) -> None:
    known = ServerBaseline({"format_note": honest.manifest[0]}, honest.profiles)
    assert found(ours("formatter", repeats=0, known=known)) == {}


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_whoever_stops_the_tracer_is_found_and_nothing_goes_on_unwatched(number: int) -> None:
    report = ours("stopper", str(int(number)), call_seconds=1.0)
    assert "tracer-tampering" in found(report)["tidy"]
    assert report.problem
    assert "not called: later" in report.problem
    assert report.tools[1].calls == ()


def test_a_server_that_crashes_in_a_call_is_told_as_that_and_not_as_tampering() -> None:
    report = ours("stopper", "crash", call_seconds=5.0)
    assert found(report) == {}
    assert report.problem
    assert report.problem.startswith("the server ended during a call of tidy; not called: later; the server ended with")
    assert report.tools[1].calls == ()


def test_a_tool_that_takes_too_long_twice_is_called_no_more() -> None:
    report = ours("stopper", "hang", call_seconds=0.1, repeats=3)
    assert [call.outcome for call in report.tools[0].calls] == ["timeout", "timeout"]
    assert report.tools[1].calls
    assert report.problem is None


def test_who_comes_after_a_call_that_never_ends_is_tried_before_it_and_not_blamed_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A second of work is enough to be judged by; whoever is not stuck has as much time as ever.
    monkeypatch.setattr(usage, "BUSY_SHARE", 0.2)
    monkeypatch.setattr(usage, "BUSY_SECONDS", 1.0)
    report = ours("stuck", hostile=True, repeats=0, call_seconds=4.5, start_seconds=1.5)
    assert report.problem is None
    assert found(report) == {"count": {"uses-up-machine"}, "show_note": {"argument-leads-out"}}


def test_a_server_that_answers_nothing_any_more_is_called_no_more() -> None:
    report = ours("stuck", "always", repeats=0, call_seconds=0.2, start_seconds=1.5)
    assert report.problem
    assert report.problem.startswith("the server stopped answering during a call of count; not called: show_note, dou")
    assert [tool.calls for tool in report.tools[1:]] == [(), ()]


def test_a_server_that_ends_is_told_with_its_last_words() -> None:
    with pytest.raises(ServerError, match=r"exit code 4 .*\n?oh no"):
        probe("sh", "-c", "echo oh no >&2; exit 4")


def test_a_server_that_does_not_answer_is_told() -> None:
    with pytest.raises(ServerError, match="did not answer initialize"):
        probe("sleep", "60", start_seconds=0.5)


def test_a_program_that_is_not_there_is_told() -> None:
    with pytest.raises(StartError, match="no-such-program"):
        probe("no-such-program")


def test_nothing_is_left_of_a_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ours("formatter", repeats=0)
    assert list(tmp_path.iterdir()) == []


def test_progress_is_told() -> None:
    told: list[tuple[int, int, str]] = []
    ours("formatter", repeats=0, progress=lambda *each: told.append(each))
    assert told[0] == (0, 2, "format_note")
    assert told[-1] == (2, 2, "")


def package(name: str) -> str:
    return str(MODULES / "@modelcontextprotocol" / name / "dist" / "index.js")


@pytest.mark.parametrize(
    ("name", "command", "variables"),
    [
        ("time", lambda: [str(BIN / "mcp-server-time")], {}),
        ("git", lambda: [str(BIN / "mcp-server-git"), "--repository", "{repository}"], {}),
        # Where Node is on its path, a library of this one starts npm when it is called, which is found.
        ("fetch", lambda: [str(BIN / "mcp-server-fetch")], {"PATH": str(BIN)}),
        ("filesystem", lambda: [node(), package("server-filesystem"), "{documents}"], {}),
        ("memory", lambda: [node(), package("server-memory")], {"MEMORY_FILE_PATH": "{home}/memory.jsonl"}),
        ("everything", lambda: [node(), package("server-everything")], {}),
    ],
)
def test_an_honest_server_is_clean(name: str, command: Any, variables: dict[str, str]) -> None:
    report = probe(*command(), variables=variables, repeats=0, call_seconds=1.5)
    assert [each.data() for each in report.findings] == []
    assert report.problem is None
    outcomes = [call.outcome for tool in report.tools for call in tool.calls]
    assert outcomes.count("ok") * 2 > len(outcomes)
    assert (name == "fetch") == ("net.connect" in report.tools[0].observed)
