"""A state folder with an operator and a key, and the commands of the roll-out on it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from typer.testing import CliRunner

from proxy.commands.command_tree import app
from proxy.core.rollout import ReplicaState
from proxy.errors import InterlockError
from proxy.identity.token_file import OperatorTokens
from proxy.store.open_store import open_database
from proxy.store.rollout_store import Rollout

RUN = CliRunner()
POLICY = """
version: 1
default: allow
rules:
  - id: no-shell
    action: deny
    tools: [shell]
    tests: [{call: {tool: shell}, expect: deny}]
"""


def make_folder(folder: Path) -> Path:
    """Make an operator and a key; return the policy's file."""
    OperatorTokens(folder).ensure()
    run("policy", "key")
    file = folder / "policy.yaml"
    file.write_text(POLICY)
    return file


def run(*arguments: str, code: int = 0) -> str:
    result = RUN.invoke(app, arguments)
    # What the command line prints of an error is what the error says.
    said = f"{result.output}{result.exception}" if isinstance(result.exception, InterlockError) else result.output
    assert result.exit_code == code, said
    return said


def push(file: Path, *more: str, code: int = 0) -> str:
    return run("policy", "push", str(file), "--wait", "0", *more, code=code)


def report(folder: Path, *states: ReplicaState) -> None:
    async def work() -> None:
        database = open_database(None, folder)
        for state in states:
            await Rollout(database).report(state)
        await database.close()

    asyncio.run(work())
