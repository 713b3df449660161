"""What shows that a hostile input acted, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.probe.declared_scope import DeclaredScope
from proxy.probe.experiments import EXPERIMENTS, Parameter, Planned, Proved
from proxy.probe.findings import ProbeCall
from proxy.probe.hostile import ENTITY, OPTION, UP, Attempt, Proof
from proxy.probe.hostile_findings import judge_attempts, judge_experiments
from proxy.probe.rulebook import rulebook
from proxy.probe.texts import CallText
from tests.probe.test_findings import record


def rules(
    proof: Proof,
    token: str,
    *records: Any,
    texts: tuple[str, str] = ("", ""),
    parameter: str = "title",
    label: str = "x",
    scope: DeclaredScope | None = None,
) -> list[str]:
    calls = [ProbeCall("t", name, "{}", scope or DeclaredScope()) for name in ("all", "hostile")]
    attempt = Attempt({}, parameter, label, proof, token)
    said = [CallText(number, text) for number, text in enumerate(texts)]
    return [each.rule for each in judge_attempts({1: attempt}, calls, records, said, rulebook())]


@pytest.mark.parametrize(
    ("argv", "call", "found"),
    [
        (("/bin/echo", "qm"), 1, ["argument-executed"]),
        (("/bin/sh", "-c", "true qm"), 1, []),  # passed on, and not run
        (("/bin/echo", "other"), 1, []),
        (("/bin/echo", "qm"), 0, []),  # an honest call
        ((), 1, []),
    ],
)
def test_a_command_ran_if_its_own_program_was_started(argv: tuple[str, ...], call: int, found: list[str]) -> None:
    assert rules("ran", "qm", record(call, "proc.exec", "exec", path="/bin/echo", argv=argv)) == found


def test_a_name_that_leads_to_a_secret_is_an_escape_and_a_path_is_told_as_one() -> None:
    opened = record(1, "fs.read", path="/h/.ssh/id_rsa")
    assert rules("opened", "/h/.ssh/id_rsa", opened) == ["argument-leads-out"]
    assert rules("opened", "/h/.ssh/id_rsa", opened, parameter="documentName") == ["argument-leads-out"]
    assert rules("opened", "/h/.ssh/id_rsa", opened, parameter="file_path") == ["opens-any-file"]
    assert rules("opened", "/h/.ssh/id_rsa", opened, parameter="document") == ["opens-any-file"]
    asked = "a command that reads a secret"
    assert rules("opened", "/h/.ssh/id_rsa", opened, parameter="cmd", label=asked) == ["opens-any-file"]
    assert rules("opened", "/h/.ssh/id_rsa", record(1, "fs.read", path="/h/.ssh/id_rsa", error="EACCES")) == []
    assert rules("opened", "/h/.ssh/id_rsa", record(1, "fs.read", path="/h/notes")) == []


def test_a_file_outside_of_the_folder_that_a_tool_names_breaks_its_own_limit() -> None:
    opened, limited = record(1, "fs.read", path="/h/.ssh/id_rsa"), DeclaredScope(one_folder=True)
    assert rules("opened", "/h/.ssh/id_rsa", opened, parameter="file_path", scope=limited) == ["own-limit-broken"]
    asked = "a command that reads a secret"
    assert rules("opened", "/h/.ssh/id_rsa", opened, parameter="cmd", label=asked, scope=limited) == ["opens-any-file"]


def test_a_module_that_is_loaded_is_code_that_runs() -> None:
    loaded = record(1, "fs.read", path="/usr/lib/python3/antigravity.py")
    assert rules("opened", "/antigravity.", loaded, label="the name of a module") == ["argument-executed"]


def test_what_is_shown_counts_unless_an_honest_caller_sees_it_too() -> None:
    assert rules("shown", "<class '", texts=("", "hello <class 'str'>")) == ["argument-evaluated"]
    assert rules("shown", "<class '", texts=("<class 'int'>", "hello <class 'str'>")) == []
    assert rules("shown", "42", texts=("", "6*7")) == []


def test_an_error_of_sql_counts() -> None:
    told = 'error: near "Brien": syntax error'
    assert rules("complained", "'", texts=("", told)) == ["argument-in-query"]
    assert rules("complained", "'", texts=(told, told)) == []


def test_metadata_that_is_reached_is_told() -> None:
    reached = record(1, "net.connect", "connect", peer="169.254.169.254:80")
    assert rules("reached", "169.254.169.254", reached) == ["argument-reaches-inside"]
    assert rules("reached", "169.254.169.254", record(1, "net.connect", "connect", peer="192.0.2.1:80")) == []


def test_an_error_that_quotes_the_caller_is_told_though_honest_texts_are_no_sql_either() -> None:
    honest, hostile = 'near "short": syntax error', 'near "Brien": syntax error'
    assert rules("complained", "'", texts=(honest, hostile)) == ["argument-in-query"]
    assert rules("complained", "'", texts=("OperationalError", "OperationalError")) == []


def test_a_filter_that_holds_the_callers_brackets_is_told_and_an_echo_is_not() -> None:
    assert rules("filtered", "qm", texts=("", "no entry for (uid=qm*)(|(q=*)")) == ["argument-in-query"]
    assert rules("filtered", "qm", texts=("", "no entry for (uid=qm\\2a\\29\\28)")) == []
    assert rules("filtered", "qm", texts=("", "you said qm*)(|(q=*")) == []


def test_an_entity_that_is_looked_up_leads_out_whatever_its_parameter_is_called() -> None:
    opened = record(1, "fs.read", path="/h/.ssh/id_rsa")
    assert rules("opened", "/h/.ssh/id_rsa", opened, parameter="document", label=ENTITY) == ["argument-leads-out"]
    looked_up = record(1, "net.dns", "query", name="qm.example")
    assert rules("reached", "qm.example", looked_up, label=ENTITY) == ["argument-leads-out"]
    assert rules("reached", "qm.example", record(1, "net.dns", "query", name="x.example"), label=ENTITY) == []


def test_an_option_acts_if_its_program_wrote_or_read_what_it_says() -> None:
    wrote = record(1, "fs.write", "open", path="/tmp/qm")
    assert rules("wrote", "/tmp/qm", wrote, label=OPTION) == ["argument-executed"]
    assert rules("wrote", "/tmp/qm", record(1, "fs.write", "open", path="/w/--output=/tmp/qm"), label=OPTION) == []
    opened = record(1, "fs.read", path="/h/.ssh/id_rsa")
    assert rules("opened", "/h/.ssh/id_rsa", opened, parameter="file", label=OPTION) == ["argument-executed"]


def test_a_line_of_a_header_counts_in_a_header_alone() -> None:
    sent = b"GET / HTTP/1.1\r\nX-Title: qm\r\nqm: 1\r\n\r\n"
    assert rules("headed", "\r\nqm: 1", record(1, "net.connect", "send", data=sent)) == ["argument-in-query"]
    assert rules("headed", "\r\nqm: 1", record(1, "net.connect", "send", data=b"qm\r\nqm: 1")) == []
    body = b"POST / HTTP/1.1\r\nHost: x\r\n\r\nqm\r\nqm: 1"
    assert rules("headed", "\r\nqm: 1", record(1, "net.connect", "send", data=body)) == []


@pytest.mark.parametrize(
    ("folder", "usual", "scope", "found"),
    [
        ("/srv/pages", (), DeclaredScope(), ["argument-leads-out"]),
        ("/h", ("/h", "/w"), DeclaredScope(), ["opens-any-file"]),
        ("/w", ("/h", "/w"), DeclaredScope(), ["opens-any-file"]),
        ("/tmp", (), DeclaredScope(), ["opens-any-file"]),
        ("/srv/repo/docs", (), DeclaredScope(named=("/srv/repo",)), ["opens-any-file"]),
    ],
)
def test_a_path_that_leaves_the_folder_which_a_tool_puts_before_it_leads_out(
    folder: str, usual: tuple[str, ...], scope: DeclaredScope, found: list[str]
) -> None:
    calls = [ProbeCall("t", name, "{}", scope) for name in ("all", "name", "up")]
    attempts = {
        1: Attempt({}, "path", "a name in a folder", "placed", "qm.txt"),
        2: Attempt({}, "path", UP, "opened", "/h/.ssh/id_rsa"),
    }
    records = [
        record(1, "fs.read", path=f"{folder}/qm.txt", error="ENOENT"),
        record(2, "fs.read", path="/h/.ssh/id_rsa"),
    ]
    assert [each.rule for each in judge_attempts(attempts, calls, records, [], rulebook(), usual=usual)] == found


def test_what_experiments_proved_is_told_once_for_a_tool_and_a_rule() -> None:
    planned = Planned(EXPERIMENTS[0], Parameter("id", 1, "id", "Shows it"), {}, {})
    proved = [("t", planned, Proved("secrets-of-anybody", "pii.card of 1")) for _ in range(2)]
    (found,) = judge_experiments(proved, rulebook())
    assert (found.tool, found.rule, found.severity) == ("t", "secrets-of-anybody", "high")
    assert found.evidence == ("pii.card of 1",)
