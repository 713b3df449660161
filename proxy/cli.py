"""The `interlock` command: the root of it, and what all commands share."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer
from rich.console import Console
from rich.text import Text

from proxy import __version__, logs
from proxy.commands import (
    agents,
    audit,
    baselines,
    ca,
    config,
    db,
    env,
    keys,
    operators,
    pins,
    policy,
    probe,
    proposals,
    run,
    status,
    up,
    wrap,
)
from proxy.commands import exec as exec_
from proxy.errors import InterlockError

EXIT_ERROR = 1

app = typer.Typer(
    name="interlock",
    help="See, stop and record what an AI agent's MCP tools do.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up", epilog=up.EPILOG)(up.up)
app.command("run", epilog=run.EPILOG)(run.run)
app.command("exec", epilog=exec_.EPILOG)(exec_.exec_)
app.command("env", epilog=env.EPILOG)(env.env)
app.command("probe", epilog=probe.EPILOG)(probe.probe)
app.command("wrap", epilog=wrap.EPILOG)(wrap.wrap)
app.command("status", epilog=status.EPILOG)(status.status)
app.add_typer(config.app, name="config")
app.add_typer(ca.app, name="ca")
app.add_typer(agents.app, name="agents")
app.add_typer(operators.app, name="operators")
app.add_typer(proposals.app, name="proposals")
app.add_typer(policy.app, name="policy")
app.add_typer(audit.app, name="audit")
app.add_typer(pins.app, name="pins")
app.add_typer(baselines.app, name="baselines")
app.add_typer(keys.app, name="keys")
app.add_typer(db.app, name="db")


def _version(value: bool) -> None:  # noqa: FBT001  typer's callback signature
    if value:
        typer.echo(f"interlock {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(  # noqa: ARG001, FBT001  handled by its callback
        False, "--version", help="Print the version.", callback=_version, is_eager=True
    ),
) -> None:
    """See, stop and record what an AI agent's MCP tools do."""
    logs.hush()  # `up` configures them in full


def main() -> None:
    """Run the command line: an error of ours or the system's is one message and exit code 1, never a traceback."""
    try:
        app()
    except InterlockError as error:
        _complain(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _complain(f"{where}{error.strerror or error}; check that the path exists and may be used, or name another")


def _complain(message: str) -> NoReturn:
    Console(stderr=True, soft_wrap=True).print(Text.assemble(("error:", "bold red"), " ", message))
    sys.exit(EXIT_ERROR)


if __name__ == "__main__":
    main()
