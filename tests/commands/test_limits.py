"""`interlock limits show`: what is used, and whose it is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from typer.testing import CliRunner

from proxy.commands.command_tree import app
from proxy.core.model import Call
from proxy.policy.load import load_policy
from proxy.store.limit_store_sqlite import LIMITS_FILE, SqliteLimits

POLICY = """
version: 1
default: allow
limits:
  - {id: mails, tools: [send_mail], count: 20, within: 1h}
  - {id: money, tools: [pay], sum: {arg: amount, max: 100}, within: 1d, per: [agent, tool]}
"""


async def use(state_dir: Path, policy: Path, *calls: Call) -> None:
    store = SqliteLimits(state_dir / LIMITS_FILE)
    for number, call in enumerate(calls):
        assert await store.reserve(f"c{number}", load_policy(policy).decide(call).charges) == []
    await store.close()


def test_what_is_used_of_each_limit(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    where = ["--policy", str(policy), "--state-dir", str(tmp_path)]
    assert "Nothing is used" in CliRunner().invoke(app, ["limits", "show", *where]).output
    mail = Call("tools/call", "s", "Bot", "send_mail", {})
    pay = Call("tools/call", "s", "other", "pay", {"amount": "12.50"})
    asyncio.run(use(tmp_path, policy, mail, mail, pay))
    rows = [
        json.loads(row) for row in CliRunner().invoke(app, ["limits", "show", "--json", *where]).output.splitlines()
    ]
    shown = [(row["limit"], row["whose"], row["used"], row["max"], row["calls"], row["within"]) for row in rows]
    assert shown == [
        ("mails", {"agent": "bot"}, "2", "20", 2, "1h"),
        ("money", {"agent": "other", "tool": "pay"}, "12.5", "100", 1, "1d"),
    ]
    only = CliRunner().invoke(app, ["limits", "show", "--agent", "BOT", *where]).output
    assert "mails" in only
    assert "money" not in only
    policy.write_text("version: 1\n")
    assert "no limits" in CliRunner().invoke(app, ["limits", "show", *where]).output
