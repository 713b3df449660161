"""`interlock policy history` and `interlock policy key`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from proxy.core.rollout import ReplicaState
from proxy.rollout.step import sign
from proxy.store.open_store import open_database
from proxy.store.rollout_store import Rollout
from tests.commands.rollout_fixture import make_folder, push, report, run
from tests.rollout.fixtures import OTHER, OTHER_KEY, step


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INTERLOCK_STATE_DIR", str(tmp_path))
    return make_folder(tmp_path)


def test_steps_and_replicas_are_listed(file: Path, tmp_path: Path) -> None:
    assert "No policy was pushed yet" in run("policy", "history")
    push(file, "--note", "first one")
    push(file, "--canary", "agents=b*")
    report(tmp_path, ReplicaState("host-1", 2, "v1"))
    said = run("policy", "history")
    assert "first one" in said
    assert "2 for agents b*" in said
    assert "host-1" in said
    lines = [json.loads(line) for line in run("policy", "history", "--json").splitlines()]
    assert [(line["kind"], line["step"]) for line in lines] == [("step", 2), ("step", 1), ("replica", 2)]
    assert len(run("policy", "history", "--json", "--limit", "1").splitlines()) == 2


def test_a_forged_step_and_a_replica_in_trouble_are_loud(file: Path, tmp_path: Path) -> None:
    push(file)

    async def forge() -> None:
        database = open_database(None, tmp_path)
        await Rollout(database).add(sign(step(2), OTHER.key_id, OTHER_KEY), {})
        await Rollout(database).give_up(1, "x", "denials jumped")
        await database.close()

    asyncio.run(forge())
    report(tmp_path, ReplicaState("host-1", 1, "v1", "policy step 2 is not trusted"))
    said = run("policy", "history", code=1)
    assert "NOT VALID: policy step 2 is signed by the key" in said
    assert "The canary of step 1 was ended: denials jumped" in said
    assert "is not trusted" in said


def test_a_key_is_made_once_and_its_public_half_written(file: Path, tmp_path: Path) -> None:
    made = json.loads(run("policy", "key", "--public", "public.pem", "--json"))
    assert made == json.loads(run("policy", "key", "--public", "public.pem", "--json"))
    assert "PUBLIC KEY" in (tmp_path / "public.pem").read_text()
    other = json.loads(run("policy", "key", "--key", "other.pem", "--json"))
    assert other["key"] != made["key"]
    push(file, "--key", "other.pem")
    assert "cannot write the key" in run("policy", "key", "--public", "none/public.pem", code=1)
