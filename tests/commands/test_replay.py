"""`interlock policy replay` on a log that was written by the log itself."""

import json
import time

import pytest
from typer.testing import CliRunner

from proxy.audit.local_log import LOG_FILE, LocalLog
from proxy.commands.command_tree import app
from proxy.commands.replay import recorded_events
from proxy.commands.time_format import parse_age
from proxy.config import Settings
from proxy.core.event import Filter
from proxy.core.model import AuditEvent
from proxy.errors import ConfigError, PolicyError, StoreUnavailableError
from tests.support.audit_fixture import World
from tests.support.trail_fixture import START, write

DENY = "version: 1\ndefault: allow\nrules: [{id: no-danger, action: deny, tools: [danger]}]\n"


@pytest.fixture
def state(tmp_path):
    sink = LocalLog(tmp_path / LOG_FILE)
    now = time.time()
    for number, (tool, age) in enumerate([("danger", 10 * 86_400), ("danger", 3600), ("echo", 60)]):
        sink.record_later(
            AuditEvent(
                event_id=f"e{number}",
                call_id=f"c{number}",
                kind="decided",
                time=now - age,
                method="tools/call",
                tool=tool,
                agent="a",
                server="s.example",
                arguments={"text": "[secret:github-token:aa11]"},
                decision="allow",
                reason="default_allow",
            )
        )
    sink.close()
    return tmp_path


def run(state, *arguments, policy=DENY):
    candidate = state / "new.yaml"
    candidate.write_text(policy)
    argv = ["policy", "replay", "--state-dir", str(state), *arguments, str(candidate)]
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, argv)


def test_changes_are_exit_code_3_and_json_lines(state):
    result = run(state, "--json")
    assert result.exit_code == 3
    change, summary = map(json.loads, result.stdout.splitlines())
    assert (change["kind"], change["call_id"], change["was"], change["now"], change["now_rule"]) == (
        "change",
        "c1",
        "allow",
        "deny",
        "no-danger",
    )
    assert (summary["kind"], summary["decided"], summary["changed"]) == ("summary", 2, 1)


def test_a_longer_time_reaches_more_calls(state):
    assert json.loads(run(state, "--json", "--since", "2w").stdout.splitlines()[-1])["changed"] == 2


def test_the_table_names_the_call_and_what_would_become_of_it(state):
    result = run(state)
    assert result.exit_code == 3
    for text in ("danger", "allow (default_allow)", "deny (no-danger)", "c1", "1 of 2 recorded calls"):
        assert text in result.stdout


def test_the_table_says_where_masked_arguments_decided(state):
    rule = "{id: a, action: deny, when: {arg: text, contains: secret}}"
    result = run(state, policy=f"version: 1\ndefault: allow\nrules: [{rule}]\n")
    assert "2 decisions depend on masked arguments" in result.stdout


def test_nothing_to_change_is_exit_code_0(state):
    result = run(state, policy="version: 1\ndefault: allow\n")
    assert (result.exit_code, "0 of 2 recorded calls" in result.stdout) == (0, True)


def test_a_wrong_candidate_is_told_of(state):
    assert isinstance(run(state, policy="version: 9\n").exception, PolicyError)


def test_a_state_folder_without_a_log_is_told_of(tmp_path):
    error = run(tmp_path).exception
    assert isinstance(error, ConfigError)
    assert "--state-dir" in str(error)


@pytest.mark.parametrize("text", ["", "7", "d", "7 d", "-1d", "7y", "1.5h"])
def test_a_length_of_time_that_is_none_is_refused_with_the_way_out(text):
    with pytest.raises(ConfigError, match="write 90s"):
        parse_age(text)


def test_events_from_a_time_on_are_read_in_order_from_the_store_and_the_logs(tmp_path):
    write(tmp_path, [1, 2])
    World(tmp_path, None).ship()
    write(tmp_path, [3, 4])
    found = recorded_events(Settings(state_dir=tmp_path), Filter(since=START + 2))
    assert [event["event_id"] for event in found] == ["e00002", "e00003", "e00004"]


def test_a_replay_does_not_go_by_a_part_of_the_trail(tmp_path):
    write(tmp_path, [1, 2])
    down = Settings(state_dir=tmp_path, database_url="postgresql://127.0.0.1:1/none")
    with pytest.raises(StoreUnavailableError):
        list(recorded_events(down, Filter(since=0)))
