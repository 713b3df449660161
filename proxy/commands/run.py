"""`interlock run`: runs one stdio MCP server behind the gate.

A command line in the plain form does not come here: `run_flags` parses it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proxy.commands.options import ConfigFile, StateDir
from proxy.commands.run_flags import RunFlags
from proxy.config import Settings

EPILOG = """
Examples:
  interlock run -- npx -y @modelcontextprotocol/server-everything
  interlock run --server-name files --agent build-bot -- uvx mcp-server-git --repository .
  interlock run --sandbox -- npx -y @modelcontextprotocol/server-filesystem .
  interlock run --sandbox=require -- uvx mcp-server-git --repository .
"""
RunJson = Annotated[
    bool, typer.Option("--json", help="Print log lines and errors as JSON on stderr; stdout is the server's.")
]


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The server's command and its arguments, after --.")
    ],
    server_name: Annotated[
        str | None,
        typer.Option(help="The server's name in policies, pins and the audit log; default: its package or program."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="The agent's name in policies and the audit log; default: default_agent.")
    ] = None,
    policy: Annotated[Path | None, typer.Option(help=Settings.model_fields["policy"].description)] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="off|auto|require", help=Settings.model_fields["trace"].description)
    ] = None,
    state_dir: StateDir = None,
    log_level: Annotated[str | None, typer.Option(help="Lowest level to log on stderr; default: warning.")] = None,
    config: ConfigFile = None,
    sandbox: Annotated[
        str | None,
        typer.Option(
            metavar="[PROFILE]",
            help="Hold the server to a profile: a preset (base, node, python, git, browser) or a file; without one, "
            "presets by the command. `require`, or require:PROFILE, refuses a sandbox that is not complete.",
        ),
    ] = None,
    as_json: RunJson = False,  # noqa: FBT002
) -> None:
    """Run a stdio MCP server behind the proxy.

    Use it in place of the server's own command. Every MCP message on stdin and stdout is decided,
    recorded and masked as over HTTP. stderr, signals and the exit code are the server's. When this
    command ends, the server ends, and the other way round.

    Exit code: the server's, or 128 plus the signal that ended it; 127 if there is no such program,
    126 if it cannot be executed, 125 if its sandbox could not be set up, 1 for an error of Interlock.
    """
    from proxy.runtime.stdio_run import run_server  # noqa: PLC0415  slow to import, not needed for --help

    flags = RunFlags(tuple(command), server_name, agent, policy, trace, state_dir, log_level, config, sandbox, as_json)
    raise typer.Exit(run_server(flags))
