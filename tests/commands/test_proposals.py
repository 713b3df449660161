"""`interlock proposals`, on a real store, where no proxy runs. tests/daemon has it with one."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from proxy.audit.local_log import LOG_FILE, read_log
from proxy.core.proposals import Proposal, State
from proxy.identity.token_file import OperatorTokens
from proxy.store.open_store import open_store
from tests.commands.conftest import Run, complaint
from tests.support.harness import environment as environment_of
from tests.support.processes import start_module
from tests.support.proposal_fixture import new_proposal

FIRST, SECOND = "0198aaaa-0000-7000-8000-000000000001", "0198bbbb-0000-7000-8000-000000000002"


def keep(state_dir: Path, proposal_id: str, **fields: Any) -> Proposal:
    now = time.time()
    given = {"created_at": now, "expires_at": now + 600, "arguments_hash": proposal_id} | fields
    made = new_proposal(proposal_id, **given)

    async def propose() -> Proposal:
        store = open_store(None, state_dir)
        try:
            return await store.propose(made, now)
        finally:
            await store.close()

    return asyncio.run(propose())


@pytest.fixture
def state(environment: None, tmp_path: Path) -> Path:
    """A state folder with an operator and a proposal that waits."""
    state = tmp_path / "state"
    OperatorTokens(state).ensure()
    keep(state, FIRST)
    return state


def rows(run: Run, *arguments: str) -> list[dict[str, Any]]:
    done = run("proposals", "list", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_proposals_are_listed_newest_first_and_by_state(run: Run, state: Path) -> None:
    keep(state, SECOND, state=State.BLOCKED, reason="low_integrity", created_at=time.time() + 1)
    assert [row["proposal_id"] for row in rows(run)] == [SECOND, FIRST]
    assert [row["proposal_id"] for row in rows(run, "--state", "pending")] == [FIRST]
    assert len(rows(run, "--state", "pending", "--state", "blocked")) == 2
    assert len(rows(run, "-n", "1")) == 1
    table = run("proposals", "list").stdout
    for part in (FIRST, SECOND, "pending", "blocked", "transfer_funds", "bank.example.com", "0.200", "9m"):
        assert part in table


def test_ids_can_be_copied_from_a_list_on_a_narrow_terminal(run: Run, state: Path) -> None:
    assert f"{FIRST}  pending  9m" in run("proposals", "list", COLUMNS="80").stdout


def test_an_empty_list_says_so(run: Run, state: Path) -> None:
    assert run("proposals", "list", "--state", "rejected").stdout.startswith("No proposals; ")
    assert run("proposals", "list", "--state", "rejected", "--json").stdout == ""


def test_a_proposal_is_shown_with_all_that_an_operator_needs(run: Run, state: Path) -> None:
    shown = run("proposals", "show", FIRST[:8]).stdout
    for part in (
        FIRST,
        "pending",
        "transfer_funds of bank.example.com",
        "bot",
        "payments (approval: human, policy v1)",
        "0.200",
        "output_instability 0.200",
        "prompt_drift (no_baseline)",
        "UTC, in 9m",
        "call-1",
        '"note": "***"',
    ):
        assert part in shown
    assert json.loads(run("proposals", "show", FIRST, "--json").stdout)["seconds_left"] > 500
    assert "nonce" not in shown


def test_a_proposal_cannot_drive_the_operators_terminal(run: Run, state: Path) -> None:
    keep(state, SECOND, tool="\x1b[2Jtool", principal="\u202ebot", arguments={"\x1b]0;x": "\u202e\x07"})
    for done in (run("proposals", "show", SECOND), run("proposals", "list")):
        assert done.returncode == 0
        assert not any(character in done.stdout for character in "\x1b\u202e\x07")
        assert "\\x1b[2Jtool" in done.stdout


def test_an_approval_is_kept_and_recorded_with_who_and_why(run: Run, state: Path) -> None:
    done = run("proposals", "approve", FIRST[:8], "--reason", "invoice 4711")
    assert done.returncode == 0
    assert done.stdout == ""
    assert f"Approved: {FIRST} (transfer_funds of bank.example.com for bot); the agent has 9m" in done.stderr
    shown = run("proposals", "show", FIRST).stdout
    assert "by operator, " in shown
    assert ": invoice 4711" in shown
    (event,) = [event for _, event in read_log(state / LOG_FILE)]
    assert (event["kind"], event["detail"]["operator"], event["detail"]["reason"]) == (
        "approved",
        "operator",
        "invoice 4711",
    )


def test_a_rejection_needs_its_reason(run: Run, state: Path) -> None:
    assert run("proposals", "reject", FIRST).returncode == 2
    assert "needs a reason" in complaint(run("proposals", "reject", FIRST, "--reason", " "))
    done = run("proposals", "reject", FIRST, "--reason", "wrong account", "--json")
    assert json.loads(done.stdout)["state"] == "rejected"
    assert "is rejected by operator already" in complaint(run("proposals", "approve", FIRST))


def test_what_cannot_be_decided_is_told(run: Run, state: Path) -> None:
    keep(state, SECOND, expires_at=time.time() - 5)
    assert "expired" in complaint(run("proposals", "approve", SECOND))
    assert f"close to it: {FIRST}" in complaint(run("proposals", "approve", f"{FIRST[:-1]}9"))
    assert "may be more than one" in complaint(run("proposals", "show", keep(state, f"{FIRST[:9]}x").proposal_id[:8]))
    assert "8 characters or more" in complaint(run("proposals", "show", "0198"))


def test_a_token_may_come_from_a_file_or_the_environment(run: Run, state: Path, tmp_path: Path) -> None:
    alice, bob = OperatorTokens(state).add("alice"), OperatorTokens(state).add("bob")
    keep(state, SECOND)
    (tmp_path / "alice.token").write_text(f"{alice}\n")
    by_file = run("proposals", "approve", FIRST, "--json", "--token-file", str(tmp_path / "alice.token"))
    by_environment = run("proposals", "approve", SECOND, "--json", INTERLOCK_OPERATOR_TOKEN=bob)
    assert json.loads(by_file.stdout)["operator"] == "alice"
    assert json.loads(by_environment.stdout)["operator"] == "bob"


def test_a_token_that_is_no_operators_decides_nothing_and_is_not_repeated(run: Run, state: Path) -> None:
    message = complaint(run("proposals", "approve", FIRST, INTERLOCK_OPERATOR_TOKEN="ilk_agents-own"))
    assert "not an operator's token of this state folder" in message
    assert "ilk_agents-own" not in message
    assert rows(run)[0]["state"] == "pending"


def test_without_any_operator_it_says_how_to_get_one(run: Run) -> None:
    assert "interlock operators add NAME" in complaint(run("proposals", "list"))


def test_a_store_that_cannot_be_reached_is_told(run: Run, state: Path) -> None:
    url = "postgresql://u:hidden-word@127.0.0.1:1/none"
    message = complaint(run("proposals", "list", "--database-url", url))
    assert "hidden-word" not in message


def test_the_operators_token_is_no_setting_and_is_not_shown(run: Run, state: Path) -> None:
    done = run("config", "show", INTERLOCK_OPERATOR_TOKEN="ilo_very-secret")
    assert done.returncode == 0
    assert "ilo_very-secret" not in done.stdout + done.stderr


KILLED = """
import os, signal
from unittest import mock
from proxy import cli
from proxy.store.proposal_store import Proposals

real = Proposals.decide

async def decide(self, *arguments, **more):
    if WHEN == "after":
        await real(self, *arguments, **more)
    os.kill(os.getpid(), signal.SIGKILL)

with mock.patch.object(Proposals, "decide", decide):
    cli.main()
"""


@pytest.mark.parametrize(("when", "state_left"), [("before", "pending"), ("after", "approved")])
def test_a_kill_at_the_worst_moment_leaves_no_approval_without_a_record(
    when: str, state_left: str, run: Run, state: Path
) -> None:
    arguments = ["proposals", "approve", FIRST, "--state-dir", str(state)]
    program = f"WHEN = {when!r}\n{KILLED}"
    done = subprocess.run([sys.executable, "-c", program, *arguments], check=False, capture_output=True, timeout=30)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [event["kind"] for _, event in read_log(state / LOG_FILE)] == ["approved"]
    (row,) = rows(run)
    assert row["state"] == state_left
    again = run("proposals", "approve", FIRST)
    assert again.returncode == (0 if state_left == "pending" else 1)
    assert rows(run)[0]["state"] == "approved"


def test_of_many_operators_at_once_one_decides(run: Run, state: Path) -> None:
    commands = [
        ["proposals", verb, FIRST, "--reason", f"{verb} {number}"]
        for number in range(2)
        for verb in ("approve", "reject")
    ]
    env = environment_of({"INTERLOCK_STATE_DIR": str(state)})
    started = [start_module("proxy.cli", *command, env=env) for command in commands]
    codes = [process.wait(60) for process in started]
    kinds = [event["kind"] for _, event in read_log(state / LOG_FILE)]
    decided = kinds.count("approved") + kinds.count("rejected") - kinds.count("review_failed")
    # An approval may be taken back by a rejection after it; nothing else decides twice.
    assert decided == codes.count(0) in (1, 2)
    (row,) = rows(run)
    assert row["state"] in ("approved", "rejected")
    assert codes.count(0) == 1 or row["state"] == "rejected"
