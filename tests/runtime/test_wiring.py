"""What HTTP and stdio share is built in one way."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
import pytest
from pydantic import SecretStr

from proxy.audit.local_log_files import RunLog
from proxy.config import Settings
from proxy.core.model import Answer, Context, Forward, Principal
from proxy.errors import ConfigError, PolicyError
from proxy.gate.tool_pins import approve
from proxy.policy import reloader
from proxy.runtime import pin_watcher, wiring
from proxy.runtime.wiring import Components
from tests.support.harness import DENY_ALL_DANGER, free_port
from tests.support.proposal_fixture import new_proposal
from tests.support.timeouts import PATIENCE
from tests.support.trail_reader import read_trail

CONTEXT = Context(Principal("bot"), "files", transport="stdio", session="s")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "policy.yaml").write_text(DENY_ALL_DANGER)
    return Settings(policy=tmp_path / "policy.yaml", state_dir=tmp_path / "state")


class Told(list[str | None]):
    """What was told, and a way to wait for it."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def __call__(self, server: str | None = None) -> None:
        self.append(server)
        self.event.set()


@contextlib.asynccontextmanager
async def built(settings: Settings, told: Told, **more: str | None) -> AsyncIterator[Components]:
    components = Components(settings, lambda: RunLog(settings.state_dir), told, **more)  # type: ignore[arg-type]
    try:
        yield components
    finally:
        await components.close()


@contextlib.asynccontextmanager
async def watched(components: Components):
    watching = asyncio.create_task(components.watch())
    for _ in range(3):  # its parts are tasks of their own, and each has to take its first look
        await asyncio.sleep(0)
    yield
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


def body(tool: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": tool, "method": "tools/call", "params": {"name": tool}}).encode()


async def test_the_gate_decides_by_the_policy_and_writes_to_the_log(settings: Settings) -> None:
    async with built(settings, Told()) as components:
        assert isinstance(await components.gate.requests.inspect(body("danger"), CONTEXT), Answer)
        assert isinstance(await components.gate.requests.inspect(body("echo"), CONTEXT), Forward)
    events = list(read_trail(settings.state_dir))
    assert [(e.get("tool"), e.get("decision"), e.get("outcome")) for e in events] == [
        ("danger", "deny", None),
        ("echo", "allow", None),
        ("echo", None, "unknown"),
    ]


@pytest.mark.parametrize(
    ("chosen", "served", "page"),
    [
        (None, None, None),
        (None, "http://127.0.0.1:8090", "http://127.0.0.1:8090/approvals/"),
        ("https://console.example.com", "http://127.0.0.1:8090", "https://console.example.com/approvals/"),
    ],
)
async def test_a_proposal_has_its_page_under_the_chosen_url_or_that_of_the_console(
    chosen: str | None, served: str | None, page: str | None, settings: Settings
) -> None:
    proposal = new_proposal()
    async with built(settings.model_copy(update={"console_url": chosen}), Told(), console=served) as components:
        assert components.two_phase.page(proposal) == (page and page + proposal.proposal_id)


async def test_a_bad_policy_is_told_before_a_log_is_made(settings: Settings) -> None:
    settings.policy.write_text("rules: nonsense")
    with pytest.raises(PolicyError):
        Components(settings, lambda: RunLog(settings.state_dir), Told())
    assert not (settings.state_dir / "log").exists()


async def test_the_first_start_makes_the_key_of_commit_tokens_and_each_looks_at_it(settings: Settings) -> None:
    keys = settings.state_dir / "keys" / "commit-keys.json"
    async with built(settings, Told()):
        assert keys.stat().st_mode & 0o777 == 0o600
    keys.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Components(settings, lambda: RunLog(settings.state_dir), Told())


async def test_a_new_policy_is_told_and_a_bad_one_is_not(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reloader, "POLL_SECONDS", 0.01)
    told, reloads = Told(), Told()
    components = Components(settings, lambda: RunLog(settings.state_dir), told, reloads)
    async with watched(components):
        settings.policy.write_text("rules: nonsense")
        await asyncio.wait_for(reloads.event.wait(), PATIENCE)
        assert told == []
        settings.policy.write_text(DENY_ALL_DANGER + "\n")
        await asyncio.wait_for(told.event.wait(), PATIENCE)
    assert told == [None]
    await components.close()


@pytest.mark.parametrize(("server", "seen"), [(None, ["a", "b"]), ("a", ["a"])])
async def test_approvals_are_told_and_recorded_of_the_servers_that_matter(
    server: str | None, seen: list[str], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pin_watcher, "POLL_SECONDS", 0.01)
    told = Told()
    async with built(settings, told, **({"server": server} if server else {})) as components:
        for name in ("a", "b"):
            _list_tools(components, name)
        async with watched(components):
            for name in ("b", "a"):
                components.pins.update(name, lambda pins: approve(pins, None, 1.0) if pins else None)
            await _until(lambda: sorted(told) == seen)  # type: ignore[type-var]
    events = [event["server"] for event in read_trail(settings.state_dir) if event["kind"] == "pins_approved"]
    assert sorted(events) == seen


def _list_tools(components: Components, server: str) -> None:
    value = {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}}
    components.gate.responses.on_unmatched_response(Context(Principal("bot"), server), value)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.01)


HANG_UP = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
TWO_PHASE = "version: 1\ndefault: allow\nrules:\n  - {id: pay, action: two_phase, tools: [pay]}\n"


async def test_a_store_that_two_phase_rules_need_is_tried(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "STORE_TRY_SECONDS", 0.05)
    away = settings.model_copy(update={"database_url": SecretStr(f"postgresql://u@127.0.0.1:{free_port()}/none")})

    async def problem_of(components: Components, *, wanted: bool) -> None:
        async with asyncio.timeout(PATIENCE):
            while (components.store_problem is not None) is not wanted:
                await asyncio.sleep(0.01)

    settings.policy.write_text(TWO_PHASE)
    async with built(away, Told()) as components, watched(components):
        assert components.policy.current().has_two_phase
        await problem_of(components, wanted=True)
        settings.policy.write_text(DENY_ALL_DANGER)
        components.policy.request_reload()
        await problem_of(components, wanted=False)
    settings.policy.write_text(TWO_PHASE)
    async with built(settings, Told()) as components, watched(components):
        await components.store.baseline("", "")
        await problem_of(components, wanted=False)


async def test_a_database_that_takes_no_writes_is_a_problem_though_it_answers(
    settings: Settings, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a standby does, to which a name leads after a failover."""
    monkeypatch.setattr(wiring, "STORE_TRY_SECONDS", 0.05)
    settings.policy.write_text(TWO_PHASE)
    owner = await asyncpg.connect(database_url)
    name = await owner.fetchval("SELECT quote_ident(current_database())")
    shared = settings.model_copy(update={"database_url": SecretStr(database_url)})
    try:
        async with built(shared, Told()) as components, watched(components):
            for read_only in (True, False):
                await owner.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {read_only}")
                await owner.execute(HANG_UP)
                async with asyncio.timeout(PATIENCE):
                    while ("takes no writes" in str(components.store_problem)) is not read_only:
                        await asyncio.sleep(0.01)
    finally:
        await owner.execute(f"ALTER DATABASE {name} RESET ALL")
        await owner.close()
