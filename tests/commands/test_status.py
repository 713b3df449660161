"""What `interlock status` says of a proxy, and how a policy is replaced while it runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from proxy.audit.transparency import write_problem
from proxy.sandbox.kernel_support import find_support
from tests.daemon.reload import replace_policy, wait_for
from tests.support.harness import DENY_ALL_DANGER, Interlock, interlock_cli, start_interlock

BAD = DENY_ALL_DANGER.replace("action: deny", "action: dney", 1)


def told(interlock: Interlock) -> tuple[int, dict[str, Any]]:
    done = interlock.cli("status", "--json")
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory):
    with start_interlock(tmp_path_factory.mktemp("proxy")) as running:
        yield running


def test_a_running_proxy_is_described(interlock: Interlock):
    code, run = told(interlock)
    assert code == 0
    audit = {"events": 0, "lag_seconds": None, "rejected": 0, "problems": [], "sinks": []}
    assert run.pop("audit") == audit | {"transparency_problem": None}
    assert run.pop("sandboxes") == asdict(find_support())
    assert run.pop("fleet") is None
    assert run.pop("vault") == {"credentials": 0, "problem": None}
    assert run == {"running": True, **interlock.run, "policy_problem": None}
    shown = interlock.cli("status")
    assert shown.returncode == 0
    for value in (interlock.run["listen"], "regular", interlock.run["policy"], interlock.run["policy_version"]):
        assert value in shown.stdout
    assert "PROBLEM" not in shown.stdout


def test_no_proxy_is_exit_code_1_and_says_how_to_start_one(tmp_path):
    done = interlock_cli("status", "--state-dir", str(tmp_path))
    assert done.returncode == 1
    assert "interlock up" in done.stdout
    as_json = interlock_cli("status", "--json", "--state-dir", str(tmp_path))
    assert (as_json.returncode, json.loads(as_json.stdout)["running"]) == (1, False)


def test_a_transparency_log_that_is_away_is_told(tmp_path):
    write_problem(tmp_path, "it is away", 1.0)
    assert (
        "TRANSPARENCY LOG: it has taken no checkpoints for"
        in interlock_cli("status", "--state-dir", str(tmp_path)).stdout
    )


def test_a_killed_proxy_is_not_running(tmp_path):
    (tmp_path / "run.json").write_text(
        json.dumps(
            {
                "pid": 2**22 + 1,
                "listen": "127.0.0.1:1",
                "mode": "regular",
                "ca": "",
                "policy": "",
                "policy_version": "",
                "started": 0,
            }
        )
    )
    assert interlock_cli("status", "--state-dir", str(tmp_path)).returncode == 1


def test_a_bad_policy_on_sighup_shows_loudly_and_a_good_one_clears_it(interlock: Interlock):
    before = interlock.run["policy_version"]
    replace_policy(interlock, BAD)
    wait_for(interlock, lambda run: run["policy_problem"] is not None)
    code, run = told(interlock)
    assert (code, run["running"], run["policy_version"]) == (1, True, before)
    assert "policy.yaml:4" in run["policy_problem"]
    shown = interlock.cli("status")
    assert shown.returncode == 1
    assert "POLICY PROBLEM" in shown.stdout
    assert "dney" in shown.stdout

    replace_policy(interlock, DENY_ALL_DANGER.replace("[danger]", "[danger, echo]"))
    wait_for(interlock, lambda run: run["policy_problem"] is None)
    code, run = told(interlock)
    assert code == 0
    assert run["policy_version"] != before


def test_a_changed_file_is_taken_without_a_signal(interlock: Interlock):
    before = told(interlock)[1]["policy_version"]
    (interlock.state_dir.parent / "policy.yaml").write_text(DENY_ALL_DANGER.replace("[danger]", "[danger, slow]"))
    wait_for(interlock, lambda run: run["policy_version"] != before)


def test_a_policy_that_is_gone_keeps_the_old_one_and_shows(interlock: Interlock):
    before = told(interlock)[1]["policy_version"]
    (interlock.state_dir.parent / "policy.yaml").unlink()
    run = wait_for(interlock, lambda run: run["policy_problem"] is not None)
    assert run["policy_version"] == before


def test_credentials_are_counted_and_a_damaged_vault_is_told(tmp_path):
    flags = ["--state-dir", str(tmp_path)]
    assert interlock_cli("vault", "add", "gh", "--env", "X", *flags).returncode == 0
    assert "1 credential; `interlock vault list` shows them" in interlock_cli("status", *flags).stdout
    (tmp_path / "vault.json").write_text("{")
    assert "VAULT PROBLEM" in interlock_cli("status", *flags).stdout
    told = json.loads(interlock_cli("status", "--json", *flags).stdout)["vault"]
    assert told["credentials"] is None
    assert "is damaged" in told["problem"]
