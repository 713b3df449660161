"""What is said of a proposed rule: beside a policy that is named, that of the settings, or of the running proxy."""

import json
import time

import pytest

from proxy.audit.local_log import LOG_FILE, LocalLog
from proxy.commands.rule_effect import say_effect
from proxy.config import Settings
from proxy.core.model import AuditEvent
from proxy.errors import PolicyError
from proxy.system import run_file
from tests.commands.test_rule_proposals import TEXT

FOUND = {"text": TEXT}
DENY = "version: 1\ndefault: deny\n"


@pytest.fixture
def settings(tmp_path):
    state = tmp_path / "state"
    log = LocalLog(state / LOG_FILE)
    names = {"agent": "bot", "server": "s", "tool": "read", "method": "tools/call", "arguments": {}}
    log.record_later(
        AuditEvent(
            kind="decided", event_id="e", call_id="c", time=time.time(), decision="deny", reason="default_deny", **names
        )
    )
    log.close()
    (tmp_path / "deny.yaml").write_text(DENY)
    (tmp_path / "open.yaml").write_text(DENY.replace("deny", "allow"))
    return Settings(state_dir=state, policy=tmp_path / "deny.yaml")


def said(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_recorded_calls_and_the_proof_beside_the_policy_of_the_settings(settings, capsys):
    say_effect(settings, FOUND, None, "7d", as_json=True)
    change, summary, proof = said(capsys)
    assert (change["call_id"], change["was"], change["now"]) == ("c", "deny", "allow")
    assert summary["decided"] == 1
    assert (proof["lets_more_through"], proof["witness"]["agent"]) == ("yes", "bot")


def test_a_policy_that_is_named_counts(settings, capsys):
    say_effect(settings, FOUND, settings.policy.with_name("open.yaml"), "7d", as_json=True)
    assert said(capsys)[-1]["lets_more_through"] == "no"


def test_the_policy_of_a_running_proxy_counts_before_that_of_the_settings(settings, capsys, monkeypatch):
    policy = str(settings.policy.with_name("open.yaml"))
    running = run_file.RunningProxy(1, "", "regular", "", policy, "v", 0.0)
    monkeypatch.setattr(run_file, "read", lambda _: running)
    say_effect(settings, FOUND, None, "7d", as_json=True)
    assert said(capsys)[-1]["lets_more_through"] == "no"


def test_a_rule_that_does_not_load_is_an_error(settings):
    with pytest.raises(PolicyError, match="proposal:"):
        say_effect(settings, {"text": "version: 1\nrulez: []\n"}, None, "7d", as_json=True)


def test_a_rule_that_is_in_the_policy_by_now_is_an_error(settings):
    both = settings.policy.with_name("both.yaml")
    both.write_text(TEXT)
    with pytest.raises(PolicyError, match="'notes' already"):
        say_effect(settings, FOUND, both, "7d", as_json=True)
