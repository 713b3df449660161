"""The tree of commands: their list, in the order of `interlock --help`, and what holds for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from typer._click.exceptions import ClickException, UsageError

from proxy.commands.lazy import CommandEntry, LazyGroup, spaced

PROXY, AGENT, LOCAL, POLICY = "Run the proxy", "Run an agent through it", "Local servers", "Policy"
AUDIT, OPERATORS, SETUP = "Audit", "Two-phase calls and operators", "Set-up"
EPILOG = """
Examples:
  interlock up --policy policies/
  interlock run -- npx -y @modelcontextprotocol/server-everything
  interlock audit query --since 1h --decision deny
  interlock --install-completion
"""


class Commands(LazyGroup):
    """All commands, in the order of `interlock --help`."""

    entries = (
        CommandEntry("up", "Run the proxy until SIGTERM or Ctrl-C.", PROXY),
        CommandEntry(
            "restart", "Replace the proxy that runs on the state folder, without a connection refused.", PROXY
        ),
        CommandEntry("stop", "Stop the proxy that runs on the state folder, and wait until it has ended.", PROXY),
        CommandEntry("status", "Show whether the proxy runs, where it listens and which policy is in force.", PROXY),
        CommandEntry("doctor", "Check whether Interlock works here, and say how to fix what does not.", PROXY),
        CommandEntry("confine", "Run an agent in a network that only reaches the proxy.", AGENT),
        CommandEntry("exec", "Run an agent with the environment variables that send it through the proxy.", AGENT),
        CommandEntry("env", "Print the environment variables that send an agent through the proxy.", AGENT),
        CommandEntry("call", "Call a tool of an MCP server through the proxy, or list the server's tools.", AGENT),
        CommandEntry("run", "Run a stdio MCP server behind the proxy.", LOCAL),
        CommandEntry("setup", "Put the MCP clients of this machine behind the proxy, or take them out.", LOCAL),
        CommandEntry("wrap", "Change an MCP client's configuration: run its servers behind the proxy.", LOCAL),
        CommandEntry("probe", "Run an MCP server in a sandbox and report what its tools really do.", LOCAL),
        CommandEntry("sandbox", "Learn, compare and show the sandbox profiles of local servers.", LOCAL),
        CommandEntry("policy", "Check, test, explain and replay policies.", POLICY),
        CommandEntry("pins", "List and approve the pinned tools of MCP servers.", POLICY),
        CommandEntry("flows", "Show and clear the labels that agents carry.", POLICY),
        CommandEntry("audit", "Find, summarise, export and verify recorded calls.", AUDIT),
        CommandEntry("console", "Open the web console of the running proxy, logged in by a one-time link.", OPERATORS),
        CommandEntry("proposals", "List, approve and reject what agents propose.", OPERATORS),
        CommandEntry("halt", "Halt an agent, a server or a tool, now and everywhere.", OPERATORS),
        CommandEntry("halts", "List what is halted: since when, by whom and why.", OPERATORS),
        CommandEntry("resume", "End halts.", OPERATORS),
        CommandEntry("limits", "Show what is used of the policy's limits.", OPERATORS),
        CommandEntry("baselines", "Set the prompts that tools are expected to be called under.", OPERATORS),
        CommandEntry("operators", "Add, list, change and revoke operators.", OPERATORS),
        CommandEntry("notify", "Tell people when something waits for approval.", OPERATORS),
        CommandEntry("keys", "List and rotate the keys that sign commit tokens.", OPERATORS),
        CommandEntry("config", "Show the settings and their sources.", SETUP),
        CommandEntry("ca", "Show and export the CA certificate that agents must trust.", SETUP),
        CommandEntry("agents", "Add, list and revoke agents.", SETUP),
        CommandEntry("vault", "Give agents placeholders in place of credentials.", SETUP),
        CommandEntry("injector", "Put Interlock into the pods of Kubernetes namespaces, as a webhook.", SETUP),
        CommandEntry("man", "Show the manual page: every command with its options.", SETUP),
        CommandEntry("fleet", "Share state with other replicas, and show which there are.", SETUP),
        CommandEntry("join", "Make this machine a replica of the fleet in a Postgres.", SETUP),
        CommandEntry("db", "Migrate the store's schema and show its state.", SETUP),
    )


app = typer.Typer(
    name="interlock",
    cls=Commands,
    epilog=spaced(EPILOG),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def call(words: Sequence[str], *, as_json: bool) -> int:
    """Run a command line; return its exit code. With `as_json`, wrong usage is reported as a JSON object, too."""
    if not as_json:
        app(args=list(words), prog_name="interlock")
        return 0
    from proxy.commands.terminal import print_error  # noqa: PLC0415  not needed for help and completion

    try:
        code = app(args=list(words), prog_name="interlock", standalone_mode=False)
    except ClickException as error:
        where = f"; see `{error.ctx.command_path} --help`" if isinstance(error, UsageError) and error.ctx else ""
        print_error(f"{error.format_message().rstrip('.')}{where}", as_json=True)
        return error.exit_code
    except typer.Abort:
        print_error("aborted", as_json=True)
        return 1
    return code if isinstance(code, int) else 0


def _version(value: bool) -> None:  # noqa: FBT001  typer's callback signature
    if value:
        from proxy.system.package_data import version  # noqa: PLC0415  takes a tenth of a second

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

    log_setup.silence()  # `up` and `run` configure logging themselves
