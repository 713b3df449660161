"""The policy in force at a replica: its own files at first, then whatever the newest step says for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.core.model import Call, Outcome
from proxy.errors import PolicyError
from proxy.policy.by_agent import PolicyByAgent
from proxy.policy.reloader import LivePolicy, PolicyFiles
from proxy.rollout.pushed_policy import PushedPolicy
from proxy.rollout.release_file import Release, ReleaseFile
from proxy.rollout.step import Step, sign
from tests.rollout.fixtures import KEYS, SIGNER, bundle, canary, step

STABLE, NEW, PINNED = bundle("shell"), bundle("rm"), bundle("rm", more="pins: {mode: enforce}\n")


class Replica:
    def __init__(self, folder: Path) -> None:
        (folder / "own.yaml").write_text("version: 1\ndefault: allow\nrules: [{id: o, action: deny, tools: [own]}]\n")
        self.file = ReleaseFile(folder)
        self.keys = dict(KEYS)
        self.policy = PushedPolicy(self.file, lambda: self.keys, PolicyFiles(folder / "own.yaml"))
        self.live = LivePolicy(self.policy)

    def learn(self, made: Step) -> None:
        bundles = {one.digest: one.text for one in (STABLE, NEW, PINNED)}
        self.file.learn(Release(sign(made, *SIGNER), bundles))
        self.live.reload_if_changed()

    def denied(self, agent: str = "a") -> list[str]:
        tools = ("own", "shell", "rm")
        decided = {tool: self.live.current().decide(Call("tools/call", "s", agent, tool, {})) for tool in tools}
        return [tool for tool, decision in decided.items() if decision.outcome is Outcome.DENY]


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    return Replica(tmp_path)


def test_its_own_files_count_until_something_is_pushed(replica: Replica, tmp_path: Path) -> None:
    assert replica.denied() == ["own"]
    (tmp_path / "own.yaml").write_text("version: 1\ndefault: allow\n")
    replica.live.reload_if_changed()
    assert replica.denied() == []
    replica.learn(step(1, STABLE))
    assert replica.denied() == ["shell"]
    (tmp_path / "own.yaml").write_text("version: 1\ndefault: deny\n")
    replica.live.reload_if_changed()
    assert (replica.denied(), replica.live.problem) == (["shell"], None)
    assert replica.live.current().version == f"v1-{STABLE.digest}"


def test_a_canary_by_replica_is_the_whole_policy_there(replica: Replica) -> None:
    replica.learn(step(2, STABLE, canary=canary(2, NEW, replicas=("another",))))
    assert replica.denied() == ["shell"]
    replica.learn(step(3, STABLE, canary=canary(3, NEW, replicas=(replica.file.replica(),))))
    assert replica.denied() == ["rm"]
    replica.file.end_canary(3, "denials jumped")
    replica.live.reload_if_changed()
    assert replica.denied() == ["shell"]


def test_a_canary_by_agent_is_for_these_agents(replica: Replica) -> None:
    replica.learn(step(2, STABLE, canary=canary(2, NEW, agents=("b*",))))
    assert isinstance(replica.live.current(), PolicyByAgent)
    assert (replica.denied("a"), replica.denied("bot")) == (["shell"], ["rm"])
    replica.file.end_canary(2, "denials jumped")
    replica.live.reload_if_changed()
    assert (replica.denied("a"), replica.denied("bot")) == (["shell"], ["shell"])


def test_a_canary_by_agent_that_changes_what_holds_for_all_is_not_taken(replica: Replica) -> None:
    replica.learn(step(1, STABLE))
    replica.learn(step(2, STABLE, canary=canary(2, PINNED, agents=("b*",))))
    assert "pins" in (replica.live.problem or "")
    assert replica.denied("bot") == ["shell"]


def test_a_key_that_is_no_longer_trusted_stops_a_start_and_no_running_policy(replica: Replica) -> None:
    replica.learn(step(1, STABLE))
    replica.keys.clear()
    replica.learn(step(2, NEW))
    assert "not trusted" in (replica.live.problem or "")
    assert replica.denied() == ["shell"]
    with pytest.raises(PolicyError, match="not trusted"):
        LivePolicy(replica.policy)
