"""What rules make of deeds, and one run of another."""

from __future__ import annotations

import json
from typing import Any

from proxy.probe.canary import Canary, CanaryWatch
from proxy.probe.declared_scope import DeclaredScope
from proxy.probe.findings import (
    CallResult,
    ProbeCall,
    ProbeFinding,
    ProbeReport,
    ToolReport,
    judge,
    judge_manifest,
    judge_profiles,
    order,
    profile,
    sum_up,
)
from proxy.probe.observation_facts import ProbeObservation, RunContext
from proxy.probe.rulebook import rulebook
from proxy.trace.capability import Capability, Observation

SECRET = Canary("~/.ssh/id_rsa", "abcdefghijkmnpqrstuvwxyz23456789abcdefgh")
WORLD = RunContext("/h", "/p", "/w", {"/h/.ssh/id_rsa": SECRET}, CanaryWatch((SECRET,)))


def record(call: int | None, capability: str, action: str = "open", **fields: Any) -> ProbeObservation:
    return ProbeObservation(Observation(Capability(capability), action, 1, 1.0, f"{action} {fields}", **fields), call)


def rules(
    records: list[ProbeObservation], calls: list[ProbeCall] | None = None, startup: DeclaredScope | None = None
) -> list[tuple[Any, str]]:
    calls = calls or [ProbeCall("t", "all", "{}", DeclaredScope())]
    return [(f.tool, f.rule) for f in judge(records, calls, startup or DeclaredScope(), WORLD, rulebook())]


def test_a_stolen_canary_is_told_once_and_names_its_source() -> None:
    sent = record(0, "net.connect", "send", peer="1.2.3.4:80", data=SECRET.value.encode())
    found = judge([sent, sent], [ProbeCall("t", "all", "{}", DeclaredScope())], DeclaredScope(), WORLD, rulebook())
    assert [f.rule for f in found] == ["undeclared-egress", "canary-on-the-wire"]
    assert "~/.ssh/id_rsa" in found[1].message
    assert found[0].evidence == (sent.observation.line,)
    assert found[0].capability == "net.connect"


def test_what_says_less_about_the_same_is_left_out() -> None:
    assert rules([record(0, "fs.read", path="/h/.ssh/id_rsa")]) == [("t", "canary-read")]
    assert rules([record(0, "fs.read", path="/x/.ssh/id_rsa")]) == [("t", "sensitive-path-read")]
    assert rules([record(0, "fs.write", "write", path="/h/.bashrc")]) == [("t", "persistence")]


def test_a_look_at_what_is_not_there_is_nothing_but_an_attempt_to_write_is() -> None:
    assert rules([record(0, "fs.read", path="/x/.ssh/id_rsa", error="ENOENT")]) == []
    assert rules([record(0, "fs.read", path="/etc/shadow", error="EACCES")]) == [("t", "sensitive-path-read")]
    assert rules([record(0, "fs.write", "write", path="/etc/x", error="EROFS")]) == [("t", "write-outside-scope")]
    assert rules([record(0, "fs.write", "mkdir", path="/etc/x", error="EEXIST")]) == []


def test_a_server_may_read_its_own_settings_where_it_is_started() -> None:
    assert rules([record(None, "fs.read", path="/w/.env")]) == []
    assert rules([record(0, "fs.read", path="/w/.env")]) == [("t", "sensitive-path-read")]
    assert rules([record(None, "fs.read", path="/x/.env")]) == [(None, "sensitive-path-read")]


def test_startup_is_told_apart() -> None:
    assert rules([record(None, "net.dns", "query", name="a.example")]) == [(None, "undeclared-egress")]
    assert rules([record(None, "net.dns", "query", name="a.example")], startup=DeclaredScope(launcher=True)) == []


def test_only_the_tool_that_did_it_is_blamed() -> None:
    calls = [ProbeCall("a", "all", "{}", DeclaredScope()), ProbeCall("b", "all", "{}", DeclaredScope())]
    assert rules([record(1, "exec.fileless", "exec", path="/memfd:x")], calls) == [("b", "fileless-exec")]


def test_git_may_bring_its_index_up_to_date_while_it_reads() -> None:
    calls = [ProbeCall("git_status", "all", "{}", DeclaredScope(read_only=True, named=("/r",)))]
    assert rules([record(0, "fs.write", "rename", path="/r/.git/index")], calls) == []
    assert rules([record(0, "fs.write", "write", path="/r/README.md")], calls) == [("git_status", "read-only-broken")]


def test_a_hit_with_some_inputs_only_is_told() -> None:
    calls = [ProbeCall("t", label, label, DeclaredScope()) for label in ("required", "all", "other")]
    sent = record(2, "net.dns", "query", name="a.example")
    assert rules([sent], calls) == [("t", "undeclared-egress"), ("t", "differs-between-inputs")]
    once = record(0, "net.dns", "query", name="a.example")
    assert rules([once], calls) == [("t", "undeclared-egress")]


def test_a_hit_that_comes_when_called_again_is_told() -> None:
    calls = [ProbeCall("t", "all", "{}", DeclaredScope()) for _ in range(4)]
    sent = record(3, "net.dns", "query", name="a.example")
    assert rules([sent], calls) == [("t", "undeclared-egress"), ("t", "differs-after-calls")]


def tool(name: str, description: str = "Formats.") -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


def test_whole_tools_are_compared() -> None:
    known = {"a": tool("a"), "b": tool("b"), "c": tool("c") | {"annotations": {"readOnlyHint": True}}}
    found = judge_manifest([tool("a"), tool("c"), tool("d")], known, rulebook())
    assert {(f.tool, f.message.rpartition("Seen: ")[2]) for f in found} == {
        ("b", "the tool is gone"),
        ("c", "changed in annotations"),
        ("d", "the tool is new"),
    }


def test_nothing_is_changed_where_nothing_was_known() -> None:
    assert judge_manifest([tool("a")], None, rulebook()) == []
    assert judge_profiles({"a": {"net.connect": ["x"]}}, None, rulebook()) == []


def test_hidden_characters_are_found_at_once() -> None:
    assert [f.rule for f in judge_manifest([tool("a", "Fo\u200brmats")], None, rulebook())] == ["hidden-characters"]


def test_behaviour_that_is_new_is_told() -> None:
    before = {"a": {"proc.exec": ["git"]}, "b": {}}
    now = {"a": {"proc.exec": ["git", "sh"]}, "b": {"net.dns": ["x.example"], "kernel": []}, "c": {"kernel": []}}
    found = judge_profiles(now, before, rulebook())
    assert [(f.tool, f.message.rpartition("Seen: ")[2]) for f in found] == [
        ("a", "proc.exec sh"),
        ("b", "net.dns x.example; kernel"),
    ]


def test_less_than_before_is_no_finding() -> None:
    assert judge_profiles({"a": {}}, {"a": {"net.connect": ["x"]}}, rulebook()) == []


def test_a_profile_holds_what_lasts() -> None:
    records = [
        record(0, "fs.read", path="/h/x"),
        record(0, "fs.write", "write", path="/tmp/random123"),
        record(0, "proc.exec", "exec", path="/usr/bin/git", argv=("git",)),
        record(0, "ipc.unix", "connect", path="/var/run/nscd/socket", error="ENOENT"),
        record(0, "net.connect", "connect", peer="1.2.3.4:80"),
    ]
    assert profile(records, WORLD) == {"fs.write": [], "net.connect": ["1.2.3.4"], "proc.exec": ["git"]}


HIGH = ProbeFinding("t", "canary-read", "high", "fs.read", "It reads.", ("line",))
INFO = ProbeFinding(None, "differs-between-inputs", "info", None, "It differs.")


def test_a_report_is_one_json_object() -> None:
    tool = ToolReport("t", DeclaredScope(read_only=True), {}, (CallResult("all", "ok"),))
    said = json.loads(json.dumps(ProbeReport({"name": "s"}, (tool,), {}, (HIGH,), {}).data()))
    assert {"server", "tools", "startup", "findings"} <= set(said)
    assert said["findings"] == [
        {
            "tool": "t",
            "rule": "canary-read",
            "severity": "high",
            "capability": "fs.read",
            "message": "It reads.",
            "evidence": ["line"],
        }
    ]
    assert said["tools"][0]["declared"]["read_only"] is True


def test_the_worst_comes_first() -> None:
    assert order([INFO, HIGH]) == (HIGH, INFO)
    assert [ProbeReport({}, (), {}, found, {}).worst() for found in ((), (INFO,), (INFO, HIGH))] == [
        None,
        "info",
        "high",
    ]


def test_reading_is_told_of_the_home_and_counted_elsewhere() -> None:
    paths = ("/usr/lib/x.so", "/h/a", "/h/a")
    records = [ProbeObservation(Observation(Capability.FS_READ, "open", 1, 1.0, "", path=path), 0) for path in paths]
    assert sum_up(records, RunContext("/h", "/p")) == {"fs.read": {"count": 3, "targets": ["~/a"]}}
