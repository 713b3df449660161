"""What rules make of deeds, and one run of another."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.probe.canary import Canary, CanaryWatch
from proxy.probe.declared_scope import DeclaredScope
from proxy.probe.findings import ProbeCall, ProbeFinding, blamed_by, group, judge, order, shown_line
from proxy.probe.observation_facts import ProbeObservation, RunContext, note_run
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


def judged(records: list[ProbeObservation]) -> list[tuple[Any, str]]:
    """Return the rules of a run whose home has a `.netrc`, with what all its observations together show."""
    netrc = Canary("~/.netrc", "1234567890abcdefghijkmnpqrstuvwxyz123456")
    world = RunContext("/h", "/p", "/w", {**WORLD.canaries, "/h/.netrc": netrc}, WORLD.watch)
    note_run(records, world)
    calls = [ProbeCall("t", "all", "{}", DeclaredScope())]
    return [(f.tool, f.rule) for f in judge(records, calls, DeclaredScope(), world, rulebook())]


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
    assert rules([record(0, "fs.read", path="/x/settings.toml", error="ENOENT")]) == []
    assert rules([record(0, "fs.read", path="/etc/shadow", error="EACCES")]) == [("t", "sensitive-path-read")]
    assert rules([record(0, "fs.write", "write", path="/etc/x", error="EROFS")]) == [("t", "write-outside-scope")]
    assert rules([record(0, "fs.write", "mkdir", path="/etc/x", error="EEXIST")]) == []


def test_a_hidden_file_among_the_temporary_ones_is_told() -> None:
    for path in ("/tmp/.keys", "/var/tmp/.log", "/h/tmp/.x"):
        assert rules([record(0, "fs.write", "write", path=path)]) == [("t", "hidden-temporary")]
    for path in ("/tmp/keys", "/tmp/work/.git", "/tmp/.tmpA1b2C3", "/tmp/.X11-unix"):
        assert rules([record(0, "fs.write", "write", path=path)]) == []
    assert rules([record(None, "fs.write", "write", path="/tmp/.keys")]) == []


def test_a_server_may_read_its_own_settings_where_it_is_started() -> None:
    assert rules([record(None, "fs.read", path="/w/.env")]) == []
    assert rules([record(0, "fs.read", path="/w/.env")]) == [("t", "sensitive-path-read")]
    assert rules([record(None, "fs.read", path="/x/.env")]) == [(None, "sensitive-path-read")]


def test_a_library_may_look_for_settings_from_its_own_folder_upwards_and_nowhere_else() -> None:
    code = record(None, "fs.read", path="/opt/lib/tool/main.py")

    def look(path: str) -> ProbeObservation:
        return record(None, "fs.read", "look", path=path, error="ENOENT")

    assert judged([code, look("/opt/lib/tool/.env"), look("/opt/.env")]) == []
    assert judged([code, look("/srv/app/.env")]) == [(None, "secret-sought")]


def test_what_a_library_of_http_looks_for_by_itself_is_fine_in_a_call_that_connects() -> None:
    read = record(0, "fs.read", path="/h/.netrc")
    out = record(0, "net.connect", "connect", peer="1.2.3.4:443")
    assert judged([read]) == [("t", "canary-read")]
    assert judged([read, out]) == [("t", "undeclared-egress")]
    networked = [ProbeCall("t", "all", "{}", DeclaredScope(network=True))]
    assert rules([read], networked) == []


def test_a_server_may_keep_its_state_in_a_folder_of_its_own_name() -> None:
    write = record(0, "fs.write", "write", path="/h/.notes-mcp/state.json")
    own = frozenset({"notes", "mcp"})
    for scope in (DeclaredScope(server_words=own), DeclaredScope(server_words=own, read_only=True)):
        assert rules([write], [ProbeCall("t", "all", "{}", scope)]) == []
    assert rules([write]) == [("t", "write-outside-scope")]


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


HIGH = ProbeFinding("t", "canary-read", "high", "fs.read", "It reads.", ("line",))
INFO = ProbeFinding(None, "differs-between-inputs", "info", None, "It differs.")


def test_the_worst_comes_first() -> None:
    assert order([INFO, HIGH]) == (HIGH, INFO)


def test_what_is_the_same_of_several_tools_is_told_once() -> None:
    same = [ProbeFinding(tool, "canary-read", "high", "fs.read", "It reads.", (tool,)) for tool in ("a", "b", "c")]
    other = ProbeFinding("d", "canary-read", "high", "fs.read", "It reads something else.")
    grouped = group([*same, other])
    assert [each.tools for each in grouped] == [("a", "b", "c"), ("d",)]
    assert grouped[0].evidence == ("a",)
    assert grouped[0].data()["tools"] == ["a", "b", "c"]


@pytest.mark.parametrize("call", ["keyctl(KEYCTL_READ, 3", 'add_key("user", "n"', "request_key(3"])
def test_what_a_keyring_holds_is_not_in_the_evidence(call: str) -> None:
    line = f'6 17.5 {call}, "hunter2-and-\\"more", 64) = 7'
    assert "hunter2" not in shown_line(line)
    assert "more" not in shown_line(line)
    assert shown_line('6 17.5 openat(3, "hunter2") = 7') == '6 17.5 openat(3, "hunter2") = 7'


def test_what_is_only_looked_for_counts_where_it_holds_credentials() -> None:
    look = record(0, "fs.read", "look", path="/h/.pgpass", error="ENOENT")
    assert rules([look]) == [("t", "secret-sought")]
    assert rules([record(0, "fs.read", "look", path="/h/readme", error="ENOENT")]) == []
    assert rules([record(0, "fs.read", path="/h/.vault-token", error="ENOENT")]) == [("t", "secret-sought")]
    named = [ProbeCall("t", "all", "{}", DeclaredScope(named=("/h/.pgpass",)))]
    assert rules([look], named) == []


def test_one_observation_is_blamed_by_rules_of_severity_high_alone() -> None:
    steal = record(0, "fs.read", path="/h/.ssh/id_rsa")
    assert blamed_by(steal, DeclaredScope(), WORLD, rulebook()) == "canary-read"
    hinted = record(0, "net.dns", "query", name="a.example")
    assert blamed_by(hinted, DeclaredScope(hinted=True), WORLD, rulebook()) is None
