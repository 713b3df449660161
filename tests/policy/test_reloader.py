"""The policy in force."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from proxy.core.model import Call, Outcome
from proxy.errors import PolicyError
from proxy.policy import reloader
from proxy.policy.decide import CompiledPolicy
from proxy.policy.reloader import LivePolicy
from tests.support.timeouts import PATIENCE

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


async def test_a_good_reload_is_in_force_at_once(path: Path) -> None:
    live = LivePolicy(path)
    path.write_text(DENY)
    assert outcome(live) is Outcome.ALLOW
    assert await live.reload()
    assert outcome(live) is Outcome.DENY


@pytest.mark.parametrize("content", [b"rules: [", b"\xff\xfe", b"version: 2", b"[" * 500, None])
async def test_a_bad_reload_keeps_the_old_policy_and_says_so(content: bytes | None, path: Path) -> None:
    live = LivePolicy(path)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert not await live.reload()
    assert outcome(live) is Outcome.ALLOW
    assert live.problem
    path.write_text(DENY)
    assert await live.reload()
    assert live.problem is None
    assert outcome(live) is Outcome.DENY


async def test_any_failure_to_load_keeps_the_old_policy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = LivePolicy(path)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(reloader, "load_policy", fail)
    assert not await live.reload()
    assert outcome(live) is Outcome.ALLOW
    assert live.problem == "boom"


async def test_a_bad_reload_is_one_line_in_the_log(path: Path) -> None:
    live = LivePolicy(path)
    path.write_text("version: 1\nrules:\n  - {id: a, acton: deny}\n  - {id: b, action: x}\n")
    with structlog.testing.capture_logs() as logs:
        assert not await live.reload()
    (entry,) = logs
    assert "exc_info" not in entry
    first = r".*/policy\.yaml:3:\d+: [^\n]*action[^\n]*"
    rest = r" \(and \d+ more: interlock policy check\); the old policy stays in force"
    assert re.fullmatch(first + rest, entry["event"])


async def test_a_worker_leaves_it_to_its_supervisor_to_say_what_became_of_a_reload(path: Path) -> None:
    live = LivePolicy(path)
    live.quiet = True
    with structlog.testing.capture_logs() as logs:
        path.write_text("version: 9")
        await live.reload()
        path.write_text(DENY)
        await live.reload()
    assert [entry["log_level"] for entry in logs] == ["debug", "debug"]


async def test_every_reload_is_told_of_with_its_problem(path: Path) -> None:
    told: list[str | None] = []
    live = LivePolicy(path, lambda: told.append(live.problem))
    assert told == []
    good = path.read_text()
    path.write_text("version: 9")
    await live.reload()
    path.write_text(good)
    await live.reload()
    assert [problem is None for problem in told] == [False, True]


async def test_a_change_of_the_files_is_seen_even_after_a_bad_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloader, "POLL_SECONDS", 0.005)
    reloaded = asyncio.Event()
    live = LivePolicy(path, reloaded.set)
    watching = asyncio.create_task(live.watch())
    for content, expected in (("rules: [", Outcome.ALLOW), (DENY, Outcome.DENY), (ALLOW + "# 2\n", Outcome.ALLOW)):
        path.write_text(content)
        await asyncio.wait_for(reloaded.wait(), PATIENCE)
        reloaded.clear()
        assert outcome(live) is expected
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


def test_a_change_while_the_first_policy_loads_is_not_missed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = reloader.load_policy

    def slow(policy: Path, *_: object, **__: object) -> object:
        loaded = load(policy)
        path.write_text(DENY)
        return loaded

    monkeypatch.setattr(reloader, "load_policy", slow)
    live = LivePolicy(path)
    assert live._origin.stamp() != live._stamp


async def test_what_goes_with_a_policy_is_prepared_aside_and_put_in_force_with_it(path: Path) -> None:
    threads: list[int] = []
    order: list[str] = []

    def prepare(policy: CompiledPolicy) -> Callable[[], None]:
        threads.append(threading.get_ident())
        return lambda: order.append(policy.default)

    live = LivePolicy(path, prepare=prepare)
    path.write_text(DENY)
    assert await live.reload()
    assert order == ["allow", "deny"]
    assert (threads[0] == threading.get_ident(), threads[1] == threading.get_ident()) == (True, False)


async def test_where_what_goes_with_it_cannot_be_prepared_the_old_policy_stays(path: Path) -> None:
    def prepare(policy: CompiledPolicy) -> Callable[[], None]:
        if policy.default == "deny":
            raise PolicyError("too large")
        return lambda: None

    live = LivePolicy(path, prepare=prepare)
    path.write_text(DENY)
    assert not await live.reload()
    assert (outcome(live), live.problem) == (Outcome.ALLOW, "too large")
    with pytest.raises(PolicyError, match="too large"):
        LivePolicy(path, prepare=prepare)


async def test_the_watch_reloads_when_asked_though_no_file_changed(path: Path) -> None:
    reloaded = asyncio.Event()
    live = LivePolicy(path, reloaded.set)
    watching = asyncio.create_task(live.watch())
    live.request_reload()
    await asyncio.wait_for(reloaded.wait(), PATIENCE)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


def test_a_process_without_an_event_loop_follows_the_files_too(path: Path) -> None:
    live = LivePolicy(path)
    live.reload_if_changed()
    assert (outcome(live), live.problem) == (Outcome.ALLOW, None)
    path.write_text(DENY)
    live.reload_if_changed()
    assert outcome(live) is Outcome.DENY
    path.write_text("rules: [")
    live.reload_if_changed()
    assert outcome(live) is Outcome.DENY
    assert "policy.yaml" in (live.problem or "")
    path.write_text(ALLOW)
    live.reload_if_changed()
    assert (outcome(live), live.problem) == (Outcome.ALLOW, None)


async def test_a_change_of_an_included_file_is_loaded(tmp_path):
    (tmp_path / "inner.yaml").write_text("version: 1\n")
    (tmp_path / "policy.yaml").write_text("version: 1\ndefault: allow\ninclude: [inner.yaml]\n")
    live = LivePolicy(tmp_path / "policy.yaml")
    assert live._origin.stamp() == live._stamp
    (tmp_path / "inner.yaml").write_text("version: 1\nrules: [{id: new, action: deny, tools: [t]}]\n")
    assert live._origin.stamp() != live._stamp
    assert await live.reload()
    assert [*live.current().rules] == ["new"]
