"""An agent on the same machine, as another user, without the state folder: it cannot approve what it proposed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.console_world import STABLE, World, start_world
from tests.support.system_needs import needs

NOBODY = 65534
POLICY = """\
version: 1
default: allow
rules:
  - {id: pay, action: two_phase, approval: human, tools: [transfer_funds]}
"""

pytestmark = [
    needs("curl"),
    pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user for a moment"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with start_world(tmp_path_factory.mktemp("world"), POLICY) as started:
        yield started


@pytest.fixture(scope="module")
def proposed(world: World) -> dict[str, Any]:
    answer = world.propose("transfer_funds", STABLE, amount=1_000_000, to="mallory")
    assert answer["status"] == "pending"
    return answer


def as_agent(*command: str) -> str:
    """Run a command as a user who owns nothing; return all that it printed."""
    done = subprocess.run(
        command,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        env={"PATH": "/usr/bin:/bin"},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


def state(world: World, proposed: dict[str, Any]) -> str:
    shown = world.interlock.cli("proposals", "show", proposed["proposal_id"], "--json")
    return str(json.loads(shown.stdout)["state"])


def test_the_secrets_are_out_of_its_reach(world: World) -> None:
    folder = world.interlock.state_dir
    for name in ("keys/operator.token", "console_links.json", "operators.json", "operator.sock", "console_open.html"):
        assert "denied" in as_agent("cat", str(folder / name)), name
    # Nor do they stand where every user can look: in the arguments or the environment of a process.
    told = ""
    for pid in [world.interlock.process.pid, *world.interlock.worker_pids]:
        told += Path(f"/proc/{pid}/cmdline").read_text() + as_agent("cat", f"/proc/{pid}/environ")
    assert not re.search(r"il[ol]_[\w-]{20}", told)


@pytest.mark.parametrize("via", ["", "proxy"])
def test_what_it_can_send_to_the_console_approves_nothing(world: World, proposed: dict[str, Any], via: str) -> None:
    url = world.interlock.console_url
    page = f"{url}/approvals/{proposed['proposal_id']}"
    form = "shown=yes&reason=me&csrf="
    ways = [
        [page],
        ["-d", form, f"{page}/approve"],
        ["-H", f"Origin: {url}", "-d", form, f"{page}/approve"],
        ["-H", f"Origin: {url}", "-b", "interlock=x", "-d", form, f"{page}/approve"],
        [
            "-H",
            f"Origin: {url}",
            "-H",
            f"Authorization: Bearer {proposed['proposal_id']}",
            "-d",
            form,
            f"{page}/approve",
        ],
        [
            "-H",
            f"Origin: {url}",
            "-H",
            "X-Forwarded-For: 127.0.0.1",
            "-d",
            f"token={proposed['proposal_id']}",
            f"{url}/login",
        ],
        ["-H", f"Origin: {url}", "-d", "link=ill_guess", f"{url}/login"],
        [f"{url}/calls"],
        [f"{url}/stream?calls=1"],
        [f"{url}/pending"],
    ]
    proxy = ["--proxy", world.interlock.proxy_url, "--noproxy", ""] if via else []
    for way in ways:
        answer = as_agent("curl", "-s", "-i", "--max-time", "20", *proxy, *way)
        first = answer.partition("\r\n")[0]
        assert re.match(r"HTTP/1.1 (303|401|403)", first), (way, answer)
        assert "set-cookie" not in answer.lower()
        assert "mallory" not in answer
    assert state(world, proposed) == "pending"


def test_a_link_that_was_printed_works_for_whoever_is_first_and_the_second_is_told(world: World) -> None:
    link = world.interlock.cli("console", "--print").stdout.strip()
    url, _, secret = link.partition("/login#")
    ask = ["curl", "-s", "-i", "-H", f"Origin: {url}", "-d", f"link={secret}", f"{url}/login"]
    assert "HTTP/1.1 303" in subprocess.run(ask, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "HTTP/1.1 403" in as_agent(*ask)
    refused = [event for event in world.interlock.events() if event["kind"] == "operator_refused"]
    assert refused[-1]["detail"]["presented"] == "a one-time link"
