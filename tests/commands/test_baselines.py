"""The `interlock baselines` commands, on both stores."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from pathlib import Path

import pytest

from proxy.core.proposals import Baseline
from proxy.store.open_store import open_store
from proxy.twophase.scoring import prompt_hash
from tests.commands.conftest import Run, complaint

PROMPT = "Pay the invoices of this week."


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path) -> str | None:
    """The store the commands use: a file in the state folder, or Postgres by its URL."""
    if request.param == "sqlite":
        return None
    url: str = request.getfixturevalue("database_url")
    monkeypatch.setenv("INTERLOCK_DATABASE_URL", url)
    return url


def rows(run: Run) -> list[dict]:
    done = run("baselines", "list", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_baseline_is_set_listed_replaced_and_removed(where: str | None, run: Run) -> None:
    assert "No baselines yet" in run("baselines", "list").stdout
    done = run("baselines", "set", "transfer_funds", "--prompt", "another")
    assert (done.returncode, done.stdout) == (0, "")
    run("baselines", "set", "transfer_funds", "--prompt", PROMPT)
    run("baselines", "set", "transfer_funds", "--server", "bank.example", "--prompt", "x")
    found = {row["server"]: row for row in rows(run)}
    assert found.keys() == {None, "bank.example"}
    assert found[None]["prompt_hash"] == prompt_hash(PROMPT)
    assert found[None]["set_at"] > 0
    table = run("baselines", "list").stdout
    assert prompt_hash(PROMPT) in table
    assert "(all)" in table
    assert run("baselines", "remove", "transfer_funds").returncode == 0
    assert [row["server"] for row in rows(run)] == ["bank.example"]


def test_a_proxy_finds_what_was_set(where: str | None, run: Run, tmp_path: Path) -> None:
    async def found() -> Baseline | None:
        store = open_store(where, tmp_path / "state")
        try:
            return await store.baseline("any.example", "pay")
        finally:
            await store.close()

    run("baselines", "set", "pay", "--prompt", PROMPT)
    baseline = asyncio.run(found())
    assert baseline is not None
    assert baseline.prompt_hash == prompt_hash(f"  {PROMPT.upper()}\n")


def test_the_prompt_may_come_from_a_file_or_from_stdin(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompt.txt").write_text(f"{PROMPT}\n")
    run("baselines", "set", "a", "--prompt-file", str(tmp_path / "prompt.txt"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PROMPT.encode())))
    run("baselines", "set", "b", "--prompt-file", "-")
    assert [(row["tool"], row["prompt_hash"]) for row in rows(run)] == [
        ("a", prompt_hash(PROMPT)),
        ("b", prompt_hash(PROMPT)),
    ]


def test_the_prompt_itself_is_not_kept(run: Run, tmp_path: Path) -> None:
    run("baselines", "set", "a", "--prompt", "a-very-private-prompt")
    kept = b"".join(file.read_bytes() for file in (tmp_path / "state").rglob("*") if file.is_file())
    assert prompt_hash("a-very-private-prompt").encode() in kept
    assert b"a-very-private-prompt" not in kept


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["t"], "either --prompt or --prompt-file"),
        (["t", "--prompt", "x", "--prompt-file", "latin.txt"], "either --prompt or --prompt-file"),
        (["t", "--prompt", " \u200b\n"], "not empty"),
        (["", "--prompt", "x"], "tool's name"),
        (["t", "--prompt-file", "latin.txt"], "not UTF-8 (byte 1)"),
    ],
)
def test_a_baseline_that_says_nothing_is_refused(arguments: list[str], part: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"a\xe9")
    assert part in complaint(run("baselines", "set", *arguments))
    assert rows(run) == []


def test_removing_what_is_not_there_is_told(run: Run) -> None:
    assert "no baseline of 'pay' on every server" in complaint(run("baselines", "remove", "pay"))
    assert "no baseline of 'pay' on 'b'" in complaint(run("baselines", "remove", "pay", "--server", "b"))


def test_a_name_does_not_speak_to_the_terminal(run: Run) -> None:
    done = run("baselines", "set", "a\x1b[31m[red]:ab:", "--prompt", "x")
    printed = done.stderr + run("baselines", "list").stdout
    assert "\x1b[31m" not in printed
    assert printed.count("[31m[red]:ab:") == 2


def test_a_store_that_does_not_answer_is_one_message(run: Run) -> None:
    url = "postgresql://nobody:hunter2@127.0.0.1:1/none"
    for arguments in (("list",), ("set", "a", "--prompt", "x"), ("remove", "a")):
        assert "hunter2" not in complaint(run("baselines", *arguments, "--database-url", url))
