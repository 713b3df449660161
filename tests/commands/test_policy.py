"""The `interlock policy` commands."""

import json
import time

import pytest
from typer.testing import CliRunner

from proxy.audit.local_log import LOG_FILE, LocalLog
from proxy.commands.policy import app
from proxy.core.model import AuditEvent

GOOD = """\
version: 1
default: allow
rules:
  - id: a
    action: deny
    when: {arg: path, path_under: /etc}
    tests:
      - {call: {tool: x, arguments: {path: /etc/x}}, expect: deny}
      - {call: {tool: x, arguments: {path: /tmp/x}}, expect: no_match}
"""


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def write(tmp_path):
    def make(text, name="p.yaml"):
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return file

    return make


def test_check_passes_a_good_policy_and_the_shipped_default(write):
    assert run("check", write(GOOD)).exit_code == 0
    assert run("check", "--strict").exit_code == 0


def test_check_fails_a_bad_policy_with_the_place_and_no_traceback(write):
    file = write(GOOD.replace("path_under", "path_undr"))
    result = run("check", file)
    assert result.exit_code == 1
    assert f"{file}:6:23:" in result.output
    assert "did you mean 'path_under'?" in result.output
    assert "Traceback" not in result.output


def test_check_gives_errors_as_json(write):
    result = run("check", write("version: 2\n"), "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert (told["ok"], told["errors"][0]["line"]) == (False, 1)


def test_check_gives_remarks_that_fail_only_when_strict(write):
    file = write("version: 1\ndefault: allow\nrules: [{id: a, action: deny}]\n")
    assert run("check", file).exit_code == 0
    assert run("check", file, "--strict").exit_code == 1
    (remark,) = json.loads(run("check", file, "--json").stdout)["remarks"]
    assert (remark["rule"], remark["kind"], remark["at"]) == ("a", "untested", f"{file}:3:9")


def test_test_runs_the_tests_beside_rules(write):
    result = run("test", write(GOOD))
    assert result.exit_code == 0
    assert "2 of 2 tests passed; 1 of 1 rule covered" in result.output


def test_test_fails_where_a_test_does(write):
    file = write(GOOD.replace("/tmp/x", "/etc/y"))
    assert run("test", file).exit_code == 1
    told = json.loads(run("test", file, "--json").stdout)
    assert [t["passed"] for t in told["tests"]] == [True, False]
    assert told["coverage"] == [{"rule": "a", "matching": 1, "silent": 0, "complete": False}]


def test_explain_tells_how_a_call_is_decided(write):
    call = write(json.dumps({"tool": "x", "arguments": {"path": "/etc/x"}}), "call.json")
    result = run("explain", write(GOOD), "--call", call)
    assert result.exit_code == 0
    assert "deny · policy_denied · a" in result.output
    told = json.loads(run("explain", write(GOOD), "--call", call, "--json").stdout)
    assert (told["outcome"], told["rule"]) == ("deny", "a")
    assert "/etc/x/" in told["looked_at"][0]["condition"]["views"]


def test_explain_tells_what_rules_on_observed_behaviour_make_of_an_act(write):
    rule = "  - {id: keys, on: observed, action: withhold, acts: [read], when: {arg: path, path_under: ['~/.ssh']}}\n"
    policy = write(GOOD + rule)
    result = run("explain", policy, "--act", '{"act": "fs.read", "path": "/home/me/.ssh/id"}')
    assert result.exit_code == 0
    assert result.output.splitlines()[0] == "matched by keys"
    told = json.loads(run("explain", policy, "--act", '{"act": "fs.read", "path": "/x"}', "--json").stdout)
    assert [(trace["rule"], trace["matched"]) for trace in told["looked_at"]] == [("keys", False)]
    for words in (["--act", "{"], ["--act", '{"act": "eat"}'], [], ["--act", "{}", "--call", "{}"]):
        refused = run("explain", policy, *words)
        assert refused.exit_code == 1
        assert "--act" in str(refused.exception)


def test_explain_takes_the_call_itself_and_begins_with_what_decided(write):
    two = GOOD + "  - {id: z, action: deny, when: {arg: path, path_under: /etc/x}, severity: critical}\n"
    result = run("explain", write(two), "--call", '{"tool": "x", "arguments": {"path": "/etc/x"}}')
    assert result.exit_code == 0
    first, _, winner = result.output.splitlines()[:3]
    assert first.rpartition(" ")[2] in winner


def test_explain_takes_the_id_of_a_recorded_call(write, tmp_path):
    state = tmp_path / "state"
    sink = LocalLog(state / LOG_FILE)
    event = AuditEvent(
        event_id="e1",
        call_id="c1",
        kind="decided",
        time=time.time(),
        method="tools/call",
        tool="x",
        arguments={"path": "/etc/x"},
        decision="deny",
    )
    sink.record_later(event)
    sink.close()
    told = json.loads(run("explain", write(GOOD), "--call", "c1", "--state-dir", state, "--json").stdout)
    assert (told["outcome"], told["rule"]) == ("deny", "a")
    assert run("explain", write(GOOD), "--call", "c2", "--state-dir", state).exit_code == 1


def test_explain_says_what_it_takes_where_there_is_no_such_file(write):
    result = run("explain", write(GOOD), "--call", "./nothing.json")
    assert result.exit_code == 1
    assert "give JSON, a file or an audit id" in str(result.exception)


@pytest.mark.parametrize("text", ["{", "[]", '{"tol": "x"}'])
def test_explain_refuses_a_file_that_is_no_call(write, text):
    result = run("explain", write(GOOD), "--call", write(text, "call.json"))
    assert result.exit_code == 1
    assert "not a call" in str(result.exception)
    assert "pydantic" not in str(result.exception)


def test_schema_describes_the_policy_file():
    schema = json.loads(run("schema").stdout)
    sections = {
        "rules",
        "limits",
        "labels",
        "flows",
        "egress",
        "pins",
        "incoming",
        "sandbox",
        "detectors",
        "suppressions",
        "tests",
    }
    assert set(schema["properties"]) == {"version", "mode", "include", "default", "home", "tests", *sections}
    condition = schema["$defs"]["Condition"]["properties"]
    assert {"arg", "in", "path_under", "command"} <= set(condition)
    assert schema["$defs"]["Rule"]["discriminator"]["propertyName"] == "action"
