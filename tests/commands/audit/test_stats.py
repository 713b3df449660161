"""`interlock audit stats`, on SQLite and Postgres alike, wherever the events are at the time."""

from __future__ import annotations

import json

from tests.commands.conftest import Run
from tests.support.audit_fixture import NOW, World


def test_the_trail_is_summed_up(run: Run, trail: World) -> None:
    done = run("audit", "stats", "--json", *trail.flags)
    assert (done.returncode, done.stderr) == (0, "")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found[0] == {
        "kind": "summary", "events": 6, "first": NOW + 1, "last": NOW + 6, "calls": 3, "denied": 1,
    }  # fmt: skip
    tools = {row["tool"]: row for row in found if row["kind"] == "tool"}
    assert {name: (row["calls"], row["denied"], row["errors"], row["mean_ms"]) for name, row in tools.items()} == {
        "read_file": (1, 0, 0, 4.0),
        "shell": (1, 1, 0, None),
        "pay": (1, 0, 1, 90.0),
    }
    rest = [{**row} for row in found if row["kind"] in {"denial", "secret", "day"}]
    assert rest == [
        {"kind": "denial", "reason": "policy_denied", "rule": "no-shell", "count": 1},
        {"kind": "secret", "server": "bank.example", "tool": "pay", "detector": "secrets.aws", "count": 1}
        | {"only_in_record": 0},
        {"kind": "day", "day": "2025-11-13", "calls": 3, "denied": 1},
    ]


def test_tables_say_the_same(run: Run, trail: World) -> None:
    text = run("audit", "stats", *trail.flags).stdout
    assert "6 events from 2025-11-13 02:13:21 to 2025-11-13 02:13:26 UTC: 3 tool calls, 1 denied." in text
    for title in ("Calls by tool", "Denials by rule", "Secrets by tool", "Slowest tools", "By day (UTC)"):
        assert title in text
    slowest = text[text.index("Slowest tools") :].splitlines()[2:4]
    assert [line.split()[0] for line in slowest] == ["pay", "read_file"]
    assert "more rows: --limit" in run("audit", "stats", "--limit", "1", *trail.flags).stdout


def test_filters_hold_for_stats(run: Run, trail: World) -> None:
    done = run("audit", "stats", "--json", "--tool", "pay", *trail.flags)
    kinds = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["tool"] for row in kinds if row["kind"] == "tool"] == ["pay"]


def test_nothing_is_summed_up_as_nothing(run: Run, trail: World) -> None:
    done = run("audit", "stats", "--since", "1h", *trail.flags)
    assert done.stdout == "No event matches. Events are recorded when an agent calls through the proxy.\n"
