"""The `interlock` command: the root of it, and what all commands share."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

import typer

from proxy.commands.lazy import CommandEntry, LazyGroup
from proxy.errors import InterlockError

EXIT_ERROR = 1
PROXY, AGENT, LOCAL, POLICY = "Run the proxy", "Put an agent behind it", "Local servers", "Policy"
AUDIT, OPERATORS, SETUP = "Audit", "Two-phase calls and operators", "Set-up"
EPILOG = """
Examples:

  interlock up --policy policies/

  interlock run -- npx -y @modelcontextprotocol/server-everything

  interlock audit query --since 1h --decision deny

  interlock --install-completion
"""


class Commands(LazyGroup):
    """Every command there is; `interlock --help` lists them in this order."""

    entries = (
        CommandEntry("up", "Run the proxy until it is told to stop (SIGTERM or Ctrl-C).", PROXY),
        CommandEntry("status", "Say whether a proxy runs here, where it listens and which policy is in force.", PROXY),
        CommandEntry("doctor", "Look whether Interlock can work here, and say how to mend what it lacks.", PROXY),
        CommandEntry("confine", "Run an agent where the only way out is the proxy.", AGENT),
        CommandEntry("exec", "Run an agent with an environment that sends its programs through the proxy.", AGENT),
        CommandEntry("env", "Print what to set so that an agent's programs go through the proxy.", AGENT),
        CommandEntry("run", "Run a stdio MCP server behind the proxy, in place of its own command.", LOCAL),
        CommandEntry("wrap", "Put an MCP client's stdio servers behind the proxy, and back.", LOCAL),
        CommandEntry(
            "probe", "Run a stdio MCP server where it can do no harm, and say what its tools really do.", LOCAL
        ),
        CommandEntry("policy", "Check, test, explain and replay policies.", POLICY),
        CommandEntry("pins", "Tools as pinned, and what became of them.", POLICY),
        CommandEntry("audit", "What happened: find calls, sum up, export, and verify that nothing was changed.", AUDIT),
        CommandEntry("proposals", "Proposals, and the operators' word on them.", OPERATORS),
        CommandEntry("baselines", "Prompts that tools are meant to be called under.", OPERATORS),
        CommandEntry("operators", "Operators and their tokens.", OPERATORS),
        CommandEntry("keys", "Keys that sign commit tokens.", OPERATORS),
        CommandEntry("config", "Settings.", SETUP),
        CommandEntry("ca", "The certificate authority that agents must trust.", SETUP),
        CommandEntry("agents", "Agents and their tokens.", SETUP),
        CommandEntry("db", "The store's schema.", SETUP),
    )


app = typer.Typer(
    name="interlock",
    cls=Commands,
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:  # noqa: FBT001  typer's callback signature
    if value:
        from proxy.system.package_data import version  # noqa: PLC0415  takes a tenth of a second, and few ask

        typer.echo(f"interlock {version()}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(  # noqa: ARG001, FBT001  handled by its callback
        False, "--version", help="Print the version.", callback=_version, is_eager=True
    ),
) -> None:
    """See, stop and record what an AI agent's MCP tools do."""
    from proxy.system import log_setup  # noqa: PLC0415  not needed for help and completion

    log_setup.silence()  # `up` configures them in full


def main() -> None:
    """Run the command line: what fails is one message and exit code 1, never a traceback."""
    try:
        try:
            app(prog_name="interlock")
        finally:
            sys.stdout.flush()
    except InterlockError as error:
        _complain(str(error))
    except BrokenPipeError:  # whoever read our output has seen enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_ERROR)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _complain(f"{where}{error.strerror or error}; check that the path exists and may be used, or name another")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except Exception as error:  # the boundary: users need no traceback
        if sys.flags.dev_mode:
            raise
        _complain(f"{type(error).__name__}: {error}; this is a bug of ours: PYTHONDEVMODE=1 shows where it is")


def _complain(message: str) -> NoReturn:
    from rich.console import Console  # noqa: PLC0415  not needed where all goes well
    from rich.text import Text  # noqa: PLC0415

    from proxy.commands.terminal import printable_lines  # noqa: PLC0415

    shown = Text.assemble(("error:", "bold red"), " ", printable_lines(message))
    Console(stderr=True, soft_wrap=True).print(shown)
    sys.exit(EXIT_ERROR)


if __name__ == "__main__":
    main()
