"""The policy in force."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from proxy import live_policy
from proxy.errors import PolicyError
from proxy.live_policy import LivePolicy
from proxy.model import Call, Outcome

ALLOW = "version: 1\ndefault: allow\nrules: []\n"
DENY = "version: 1\ndefault: deny\nrules: []\n"


def outcome(live: LivePolicy) -> Outcome:
    return live.current().decide(Call("tools/call", "s", "a", "t", {})).outcome


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(ALLOW)
    return file


@pytest.mark.parametrize("content", ["", "version: 2", "rules: [", "version: 1\ndefault: perhaps\nrules: []"])
def test_a_bad_policy_at_start_is_an_error(content: str, path: Path) -> None:
    path.write_text(content)
    with pytest.raises(PolicyError, match=r"policy\.yaml"):
        LivePolicy(path)


def test_a_missing_policy_at_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no such file"):
        LivePolicy(tmp_path / "none.yaml")


def test_a_good_reload_is_in_force_at_once(path: Path) -> None:
    live = LivePolicy(path)
    path.write_text(DENY)
    assert outcome(live) is Outcome.ALLOW
    assert live.reload()
    assert outcome(live) is Outcome.DENY


@pytest.mark.parametrize("content", [b"rules: [", b"\xff\xfe", b"version: 2", b"[" * 500, None])
def test_a_bad_reload_keeps_the_old_policy_and_says_so(content: bytes | None, path: Path) -> None:
    live = LivePolicy(path)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert not live.reload()
    assert outcome(live) is Outcome.ALLOW
    assert live.problem
    path.write_text(DENY)
    assert live.reload()
    assert live.problem is None
    assert outcome(live) is Outcome.DENY


def test_any_failure_to_load_keeps_the_old_policy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = LivePolicy(path)

    def fail(_: Path) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(live_policy, "load_policy", fail)
    assert not live.reload()
    assert outcome(live) is Outcome.ALLOW
    assert live.problem == "boom"


async def test_a_change_of_the_files_is_seen_even_after_a_bad_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_policy, "POLL_SECONDS", 0.005)
    live = LivePolicy(path)
    reloaded = asyncio.Event()
    reload = live.reload

    def noted() -> bool:
        done = reload()
        reloaded.set()
        return done

    monkeypatch.setattr(live, "reload", noted)
    watching = asyncio.create_task(live.watch())
    for content, expected in (("rules: [", Outcome.ALLOW), (DENY, Outcome.DENY), (ALLOW + "# 2\n", Outcome.ALLOW)):
        path.write_text(content)
        await asyncio.wait_for(reloaded.wait(), 5)
        reloaded.clear()
        assert outcome(live) is expected
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


def test_a_change_while_the_first_policy_loads_is_not_missed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = live_policy.load_policy

    def slow(policy: Path) -> object:
        loaded = load(policy)
        path.write_text(DENY)
        return loaded

    monkeypatch.setattr(live_policy, "load_policy", slow)
    live = LivePolicy(path)
    assert live._look() != live._stamp
