"""`interlock policy decide`: answers the hook of a client that asks before it uses one of its own tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proxy.agent.hook_formats import FORMATS
from proxy.commands.options import ConfigFile, StateDir
from proxy.commands.run_flags import DecideFlags
from proxy.config import Settings

EPILOG = "Example:  interlock policy decide --stdin --format claude-code"


def decide(
    *,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the call from stdin.")] = False,
    format_: Annotated[str, typer.Option("--format", help=f"Who asks: {', '.join(FORMATS)}.")] = "plain",
    agent: Annotated[str | None, typer.Option(help="The agent's name; default: default_agent.")] = None,
    policy: Annotated[Path | None, typer.Option(help=Settings.model_fields["policy"].description)] = None,
    state_dir: StateDir = None,
    config: ConfigFile = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print errors as JSON on stderr; the answer is the client's format.")
    ] = False,
) -> None:
    """Decide on one call of a client's own tools, as a client's hook, and record it.

    Reads the call as JSON from stdin and answers in the client's format. The same policy decides as
    for MCP; the audit trail has the call with transport `hook`. A call that needs masking or two
    phases is denied: a hook can do neither. `interlock setup --hooks` installs it.

    Exit code: as the client expects it. plain: 0 allow, 2 deny. claude-code and cursor: 0, and the
    answer on stdout. 2 for every failure: clients then block the call.
    """
    from proxy.runtime.hook_decision import answer_hook  # noqa: PLC0415  slow to import, not needed for --help

    raise typer.Exit(answer_hook(DecideFlags(stdin, format_, agent, policy, state_dir, config, as_json)))
