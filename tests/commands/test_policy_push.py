"""`interlock policy push`, `promote`, `abort` and `rollback`, from beginning to end."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from proxy.audit.restored import open_daemon_log
from proxy.config import Settings
from proxy.core.approvals import Role
from proxy.core.model import AuditEvent
from proxy.core.rollout import ReplicaState
from proxy.identity.token_file import OperatorTokens
from proxy.rollout import bundle as bundle_module
from proxy.store.open_store import open_database
from proxy.store.rollout_store import Rollout
from tests.commands.rollout_fixture import POLICY, make_folder, push, report, run


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INTERLOCK_STATE_DIR", str(tmp_path))
    return make_folder(tmp_path)


def steps(folder: Path) -> int:
    async def work() -> int:
        database = open_database(None, folder)
        try:
            return len(await Rollout(database).newest(0, 100))
        finally:
            await database.close()

    return asyncio.run(work())


def test_a_push_is_signed_numbered_and_told(file: Path) -> None:
    made = json.loads(push(file, "--note", "why", "--json").splitlines()[-1])
    assert (made["step"], made["action"], made["operator"], made["note"]) == (1, "push", "operator", "why")
    assert made["stable"].startswith("v1-")
    file.write_text(POLICY.replace("shell", "rm"))
    assert "version 2 is in force" in push(file)


def test_a_policy_that_fails_its_tests_is_refused_whatever_is_forced(file: Path, tmp_path: Path) -> None:
    file.write_text(POLICY.replace("expect: deny", "expect: no_match"))
    for flags in ((), ("--force",)):
        assert "not pushed: 1 test failed; no-shell test 1" in push(file, *flags, code=1)
    file.write_text("version: 1\nrules: [{id: a}]\n")
    assert "policy.yaml:2" in push(file, "--force", code=1)
    assert steps(tmp_path) == 0


def test_only_an_admin_may_push(file: Path, tmp_path: Path) -> None:
    for role in (Role.VIEWER, Role.APPROVER):
        token = tmp_path / f"{role}.token"
        token.write_text(OperatorTokens(tmp_path).add(str(role), role))
        for command in (("push", str(file)), ("rollback",), ("promote",), ("abort",)):
            assert "needs admin" in run("policy", *command, "--token-file", str(token), code=1)
    token.write_text("ilk_an-agents-token")
    assert "not an operator's token" in push(file, "--token-file", str(token), code=1)
    assert steps(tmp_path) == 0


def test_a_key_that_no_replica_here_would_trust_is_refused(file: Path, tmp_path: Path) -> None:
    for trusted in (tmp_path / "keys" / "policy-public").iterdir():
        trusted.unlink()
    assert "is not among the trusted ones" in push(file, code=1)
    assert "interlock policy key" in push(file, "--key", "none.pem", code=1)


def record(folder: Path, *tools: str) -> None:
    settings = Settings(state_dir=folder)
    log = open_daemon_log(settings)
    try:
        for number, tool in enumerate(tools):
            event = AuditEvent(
                event_id=f"{number:036}",
                kind="decided",
                time=time.time(),
                call_id=f"c{number}",
                method="tools/call",
                server="s",
                agent="a",
                tool=tool,
                decision="allow",
                reason="default_allow",
            )
            asyncio.run(log.record(event))
    finally:
        log.close()


def test_what_recorded_calls_would_change_is_shown_and_too_much_is_refused(file: Path, tmp_path: Path) -> None:
    record(tmp_path, "shell", "ls", "ls", "ls")
    said = push(file, code=3)
    assert "1 of 4 recorded calls would be decided differently." in said
    assert "not pushed: 25.0 % of the recorded calls" in said
    assert steps(tmp_path) == 0
    assert "version 1 is in force" in push(file, "--max-changes", "25")
    assert "Forced: 25.0 %" in push(file, "--force")
    assert '"changed": 1' in push(file, "--json", code=3)


def test_what_was_checked_is_what_is_signed(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file changes as soon as it was read, and after each look at it."""
    read, lax = bundle_module._read, "version: 1\ndefault: allow\n"

    def reading(path: Path, room: int) -> bytes:
        text = read(path, room)
        file.write_text(lax)
        return text

    monkeypatch.setattr(bundle_module, "_read", reading)
    push(file)
    shown = run("policy", "show", "1")
    assert "no-shell" in shown
    assert file.read_text() == lax


def test_a_rollback_is_a_new_version(file: Path) -> None:
    push(file)
    file.write_text(POLICY.replace("shell", "rm"))
    push(file)
    assert "Step 3 (rollback): version 3 is in force" in run("policy", "rollback", "--wait", "0")
    assert "no-shell" in run("policy", "show", "v3")
    assert "do the same" in run("policy", "diff", "1", "3")
    assert "- rule no-rm" in run("policy", "diff", "2", "3", code=3)
    assert "version 4 is in force" in run("policy", "rollback", "2", "--wait", "0")
    assert "no-rm" in run("policy", "show", "4")
    assert "there is no version 9" in run("policy", "rollback", "9", code=1)
    assert "is no version" in run("policy", "rollback", "x", code=1)


def test_a_canary_is_promoted_or_aborted(file: Path, tmp_path: Path) -> None:
    assert "no version yet" in push(file, "--canary", "agents=b", code=1)
    assert "no canary runs" in run("policy", "promote", code=1)
    push(file)
    file.write_text(POLICY.replace("shell", "rm"))
    assert "needs two replicas" in push(file, "--canary", "10%", code=1)
    report(tmp_path, ReplicaState("one", 1, "v1"), ReplicaState("two", 1, "v1"))
    made = json.loads(push(file, "--canary", "10%", "--json", code=3).splitlines()[-1])
    assert (made["stable"][:3], made["canary"][:3], len(made["canary_replicas"])) == ("v1-", "v2-", 1)
    assert "a canary runs, version 2" in push(file, "--canary", "agents=b", code=1)
    assert "version 1 is in force" in run("policy", "abort", "--wait", "0", code=3)
    assert "for agents b*" in push(file, "--canary", "agents=b*", code=3)
    assert "Step 5 (promote): version 4 is in force" in run("policy", "promote", "--wait", "0", code=3)


def test_a_canary_that_was_ended_is_not_promoted(file: Path, tmp_path: Path) -> None:
    push(file)
    file.write_text(POLICY.replace("shell", "rm"))
    push(file, "--canary", "agents=b")

    async def give_up() -> None:
        database = open_database(None, tmp_path)
        await Rollout(database).give_up(2, "one", "denials jumped")
        await database.close()

    asyncio.run(give_up())
    assert "the canary was ended: denials jumped" in run("policy", "promote", code=1)
    assert "version 1 is in force" in run("policy", "abort", "--wait", "0")


def test_a_profile_counts_beside_it(file: Path) -> None:
    push(file, "--profile", "watch", "--force")
    shown = run("policy", "show", "1")
    assert "no-shell" in shown
    assert "watch.yaml" in shown
    assert "there is no profile" in push(file, "--profile", "other", code=1)


def test_a_replica_that_does_not_follow_is_told(file: Path, tmp_path: Path) -> None:
    report(tmp_path, ReplicaState("one", 0, "own", "its key is not trusted"))
    said = push(file, code=3)
    assert "In force at 0 of 1 replica." in said
    assert "one follows step 0: its key is not trusted" in said
