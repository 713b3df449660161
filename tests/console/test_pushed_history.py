"""Pushed steps on the policy page: shown as hostile text, and whether each can be verified; files are not saved."""

from __future__ import annotations

from pathlib import Path

from proxy.console.policy_editor import digest_of
from proxy.console.pushed_history import pushed_steps
from proxy.console.trail import Trail
from proxy.core.approvals import Role
from proxy.rollout.keys import default_trusted, trust
from proxy.rollout.step import sign
from proxy.store.open_store import open_database
from proxy.store.rollout_store import Rollout
from tests.rollout.fixtures import OTHER, OTHER_KEY, PUBLIC, SIGNER, bundle, canary, step
from tests.support.console_fixture import POLICY, open_desk

NEW = bundle("rm")
NOTE = "<script>alert(1)</script>"


async def publish(state_dir: Path) -> None:
    trust(PUBLIC, default_trusted(state_dir))
    database = open_database(None, state_dir)
    store = Rollout(database)
    await store.add(sign(step(1, note=NOTE), *SIGNER), {})
    await store.add(sign(step(2, canary=canary(2, NEW, agents=("b*",))), *SIGNER), {})
    await store.give_up(2, "r", "denials jumped")
    await store.add(sign(step(3), OTHER.key_id, OTHER_KEY), {})
    await database.close()


async def test_the_page_shows_the_steps_and_saves_no_file(tmp_path: Path) -> None:
    async with open_desk(tmp_path, policy_source="pushed") as desk:
        await publish(desk.console.settings.state_dir)
        desk.tokens.add("ann", Role.ADMIN)
        await desk.log_in("ann")
        text = (await desk.http.get("/policy")).text
        assert 'id="pushed"' in text
        for said in ("not valid", "which is not trusted here", "2 for b*", "denials jumped", "olga", "&lt;script&gt;"):
            assert said in text
        assert NOTE not in text
        answer = await desk.post("/policy/save", file="policy.yaml", text=POLICY + "#", base=digest_of(POLICY))
        assert answer.status_code == 409
        assert desk.console.policy_path.read_text() == POLICY


async def test_where_files_count_nothing_of_it_is_shown(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        desk.tokens.add("ann", Role.ADMIN)
        await desk.log_in("ann")
        assert 'id="pushed"' not in (await desk.http.get("/policy")).text


async def test_without_a_store_there_are_no_steps(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        assert await pushed_steps(desk.console.settings, Trail(None, tmp_path / "none")) == []
        away = Trail(f"postgresql://x@/x?host={tmp_path}", tmp_path, timeout=1)
        assert await pushed_steps(desk.console.settings, away) == []
        await away.close()
