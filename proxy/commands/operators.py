"""`interlock operators`: who may see and approve what agents propose, and with which token."""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.commands.options import AsJson, store_settings, takes
from proxy.commands.terminal import print_json_lines, print_note, print_table
from proxy.commands.time_format import format_time
from proxy.commands.token_commands import token_app
from proxy.config import Settings
from proxy.core.approvals import Role
from proxy.fleet.open_state import open_tokens
from proxy.identity.token_file import OperatorTokens

NAME_HELP = "The operator's name, which is recorded with each decision."
USAGE = "Use it with `interlock proposals --token-file` or INTERLOCK_OPERATOR_TOKEN, and give it to no agent."
EMPTY = "No operators yet; `interlock operators add NAME` adds one, and so does the first start of the proxy."
Name = Annotated[str, typer.Argument(help=NAME_HELP)]
Runs = Annotated[
    list[str] | None,
    typer.Option("--runs", help="An agent that runs on the operator's behalf; repeatable. For `own: refuse` in rules."),
]

app = token_app(
    OperatorTokens,
    summary="Add, list, change and revoke operators.",
    name_help=NAME_HELP,
    usage=USAGE,
    revoked="Revoke an operator's token; it is refused at once, and earlier decisions stay valid.",
    without=("add", "list"),
)


@app.command("add", epilog="Example:  interlock operators add alice --role approver --runs build-bot")
@takes(store_settings)
def add(
    settings: Settings,
    name: Name,
    role: Annotated[
        Role, typer.Option(help="viewer: only looks; approver: also decides; admin: also changes settings.")
    ] = Role.APPROVER,
    runs: Runs = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Add an operator and print its token once."""
    token = open_tokens(OperatorTokens, settings).add(name, role, runs or ())
    if as_json:
        print_json_lines([{"operator": name, "role": role, "runs": sorted(runs or ()), "token": token}])
        return
    print_note(f"Operator {name} added as {role}. The token is shown only once:")
    typer.echo(token)
    print_note(USAGE)


@app.command("list", epilog="Example:  interlock operators list --json")
@takes(store_settings)
def list_operators(settings: Settings, as_json: AsJson = False) -> None:  # noqa: FBT002
    """List the operators that have a token."""
    tokens = open_tokens(OperatorTokens, settings)
    added, operators = tokens.names(), tokens.operators()
    if as_json:
        print_json_lines(
            {"operator": one.name, "role": one.role, "runs": sorted(one.agents), "added": added[one.name]}
            for one in operators
        )
        return
    rows = [(one.name, one.role, ", ".join(sorted(one.agents)), format_time(added[one.name])) for one in operators]
    print_table(("operator", "role", "runs", "added (UTC)"), rows, EMPTY)


@app.command("change", epilog="Example:  interlock operators change alice --role admin")
@takes(store_settings)
def change(
    settings: Settings,
    name: Name,
    role: Annotated[Role | None, typer.Option(help="The new role; absent: as it is.")] = None,
    runs: Runs = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Change an operator's role, or which agents run on the operator's behalf; the token stays the same."""
    changed = open_tokens(OperatorTokens, settings).change(name, role, runs)
    if as_json:
        print_json_lines([{"operator": name, "role": changed.role, "runs": sorted(changed.agents)}])
        return
    runs_note = f", runs {', '.join(sorted(changed.agents))}" if changed.agents else ""
    print_note(f"Operator {name} is {changed.role}{runs_note}.")
