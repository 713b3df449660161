"""A real proxy with two workers tells a real webhook once that a call waits, and once how that ended."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx2

from tests.acceptance.test_approval import HOLD, approve, pending, post
from tests.notify.conftest import Taken
from tests.support.harness import start_interlock, start_python_server
from tests.support.timeouts import PATIENCE


def states(hook: Taken) -> list[str]:
    return [json.loads(body)["state"] for _, _, body in hook.requests]


async def test_people_are_told_once_and_calls_do_not_wait_for_that(tmp_path: Path, hook: Taken) -> None:
    hook.answers = [500]  # the first try fails
    targets = tmp_path / "notify.yaml"
    targets.write_text(f"ops: {{kind: webhook, url: 'http://127.0.0.1:{hook.port}/SECRET', secret_env: HOOK}}\n")
    flags = ["--notify", str(targets), "--hold-timeout", str(PATIENCE), "--workers", "2"]
    with (
        start_python_server("funds", tmp_path / "bank", flags=["--json"]) as server,
        start_interlock(tmp_path, f"reverse:{server.url}", HOLD, flags=flags, env={"HOOK": "s3cret"}) as interlock,
    ):
        async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as http:
            call = asyncio.create_task(post(http, interlock.url, {"amount": 1, "to": "bob"}))
            await pending(interlock.state_dir)
            async with asyncio.timeout(PATIENCE):
                while len(hook.requests) < 2:
                    await asyncio.sleep(0.05)
            await approve(interlock.state_dir)
            assert (await call)["structuredContent"] == {"moved": 1}
        async with asyncio.timeout(PATIENCE):
            while len(hook.requests) < 3:
                await asyncio.sleep(0.05)
    assert states(hook) == ["pending", "pending", "approved"]
    assert all(headers["interlock-signature"].startswith("v1=") for _, headers, _ in hook.requests)
    assert "SECRET" not in interlock.stderr.read_text()
    assert "s3cret" not in interlock.stderr.read_text()
