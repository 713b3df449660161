"""`interlock vault`: credentials that agents and local servers use and never hold."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from proxy.commands.lazy import spaced
from proxy.commands.options import AsJson, store_settings, takes
from proxy.commands.terminal import print_json_lines, print_note, print_pairs, print_table, printable
from proxy.commands.time_format import format_time
from proxy.config import Settings
from proxy.core.vault import Place
from proxy.errors import ConfigError
from proxy.fleet.open_state import open_vault
from proxy.vault import placeholder as placeholders
from proxy.vault.source_files import exposure, is_own
from proxy.vault.source_states import try_source
from proxy.vault.sources import SourceError
from proxy.vault.vault_file import Bindings, CommandSource, Entry, EnvSource, FileSource, checked, known

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from proxy.vault.vault_file import Source

app = typer.Typer(help="Give agents placeholders in place of credentials.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The credential's name.")]
ADD = """
Examples:
  interlock vault add github --file ~/.secrets/github --host api.github.com --like ghp_ --variable GITHUB_TOKEN
  interlock vault add pay --command "pass show pay/live" --host api.pay.example.com --tool create_refund --place body
  interlock vault add search --env SEARCH_KEY --host api.search.example.com --place query --agent 'research-*'
  interlock vault add tickets --file /run/secrets/app.json --key tickets.token --host tickets.example.com
"""
NO_VALUE = (
    "a value does not go on the command line, where other users and the shell's history see it; write it into a file "
    "that only you can read, and give --file"
)


@dataclass(frozen=True)
class SourceOptions:
    """Where the value comes from."""

    file: Annotated[
        Path | None, typer.Option("--file", help="File with the value; it is read again when it changes.")
    ] = None
    key: Annotated[
        str | None, typer.Option("--key", help="With --file: the entry of its JSON, or of its lines KEY=VALUE.")
    ] = None
    env: Annotated[
        str | None, typer.Option("--env", help="Variable in the environment of the proxy, not of this command.")
    ] = None
    command: Annotated[
        str | None, typer.Option("--command", help="Command that prints the value; the proxy runs it, without a shell.")
    ] = None
    command_env: Annotated[
        list[str] | None, typer.Option("--command-env", help="With --command: variable of the proxy's that it gets.")
    ] = None
    ttl: Annotated[
        float | None, typer.Option("--ttl", help="With --command: seconds until it is run again; default: 60.")
    ] = None

    def given(self) -> Source | None:
        """Return the source; None where none is named. Raises ConfigError where more than one is, or half of one."""
        if sum(each is not None for each in (self.file, self.env, self.command)) > 1:
            raise ConfigError("a value has one source; give one of --file, --env and --command")
        if self.key is not None and self.file is None:
            raise ConfigError("--key names an entry of a file; give --file with it")
        if self.command is None and (self.command_env or self.ttl is not None):
            raise ConfigError("--command-env and --ttl are about a command; give --command with them")
        if self.file is not None:
            # Not the file behind it: where a link is swapped, as Kubernetes does, the new one counts.
            return checked(FileSource, path=str(self.file.expanduser().absolute()), key=self.key)
        if self.env is not None:
            return checked(EnvSource, variable=self.env)
        return None if self.command is None else _command(self.command, tuple(self.command_env or ()))


@dataclass(frozen=True)
class BindingOptions:
    """Where the credential may go."""

    host: Annotated[
        list[str] | None, typer.Option("--host", help="Host that may get it, such as api.example.com; repeatable.")
    ] = None
    tool: Annotated[
        list[str] | None, typer.Option("--tool", help="Only for calls of this tool, or of tools that fit a glob.")
    ] = None
    agent: Annotated[
        list[str] | None, typer.Option("--agent", help="Only for this agent, or for agents that fit a glob.")
    ] = None
    place: Annotated[
        list[Place] | None, typer.Option("--place", help="Where in a request it may stand; default: header.")
    ] = None
    server: Annotated[
        list[str] | None,
        typer.Option("--server", help="Wrapped server (or glob) that finds the placeholder under --variable."),
    ] = None
    variable: Annotated[
        str | None,
        typer.Option("--variable", help="Environment variable for the placeholder: of --server, else of agents."),
    ] = None
    allow_plain: Annotated[
        bool | None,
        typer.Option(
            "--allow-plain/--no-allow-plain", help="Let it go over http:// to other machines.", show_default=False
        ),
    ] = None

    def changed(self, bindings: Bindings) -> Bindings:
        """Return bindings with what is given here in place of what was there; an empty word takes it away."""
        given = {
            **{f"{name}s": getattr(self, name) for name in ("host", "tool", "agent", "server")},
            "places": self.place,
            "plain": self.allow_plain,
        }
        fields = {name: value for name, value in given.items() if value is not None}
        fields = {
            name: [each for each in value if each] if isinstance(value, list) else value
            for name, value in fields.items()
        }
        if self.variable is not None:
            fields["variable"] = self.variable or None
        return checked(Bindings, **{**dict(bindings), **fields})


def _command(line: str, environment: tuple[str, ...]) -> CommandSource:
    try:
        argv = shlex.split(line)
    except ValueError as error:
        raise ConfigError(f"--command {line!r} cannot be split into words ({error}); check its quotes") from None
    if not argv:
        raise ConfigError("--command is empty; write a program and its arguments")
    program = Path(argv[0]).expanduser()
    # The proxy runs it in another folder.
    argv[0] = str(program.absolute()) if "/" in argv[0] else argv[0]
    if shutil.which(argv[0]) is None:
        raise ConfigError(f"there is no program {argv[0]!r} on PATH; name one that is there, by its whole path")
    return checked(CommandSource, argv=tuple(argv), environment=environment)


@app.command(epilog=spaced(ADD), context_settings={"allow_extra_args": True})
@takes(SourceOptions, BindingOptions, store_settings)
def add(
    source_options: SourceOptions,
    binding_options: BindingOptions,
    settings: Settings,
    context: typer.Context,
    name: Name,
    like: Annotated[
        str | None,
        typer.Option("--like", help="Prefix that programs insist on, such as ghp_ or sk-; the rest is made up."),
    ] = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Add a credential and print its placeholder, which agents and servers use in its place.

    The value stays where it is: in a file, a variable of the proxy, or behind a command. The proxy puts it into
    requests to the hosts that the credential is bound to. It is never an argument of this command.
    """
    if context.args:
        raise ConfigError(NO_VALUE)
    source = source_options.given()
    if source is None:
        raise ConfigError(f"credential {name!r} needs a source; give --file, --env or --command")
    ttl = {} if source_options.ttl is None else {"ttl": source_options.ttl}
    bindings, made = binding_options.changed(Bindings()), placeholders.make(name, like)
    entry = checked(Entry, placeholder=made, source=source, bindings=bindings, added=time.time(), **ttl)
    open_vault(settings).add(name, entry)
    warnings = list(_warnings(name, entry))
    if as_json:
        print_json_lines([{**_data(name, entry), "warnings": warnings}])
        return
    print_note(f"Credential {name} added. Its placeholder, which opens nothing:")
    typer.echo(made)
    _print_warnings(warnings)


@app.command(epilog="Example:  interlock vault bind github --host api.github.com --host uploads.github.com --tool ''")
@takes(SourceOptions, BindingOptions, store_settings)
def bind(
    source_options: SourceOptions,
    binding_options: BindingOptions,
    settings: Settings,
    name: Name,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Change where a credential may go, or its source; the placeholder stays, and a running proxy follows at once.

    What is given takes the place of what was there, and an empty word, as in --tool '', takes it away.
    """

    def edit(entry: Entry) -> Entry:
        changes: dict[str, Any] = {"bindings": binding_options.changed(entry.bindings)}
        # A time alone is for the command that is there.
        of_command = source_options.ttl is not None and isinstance(entry.source, CommandSource)
        source = None if of_command and source_options.command is None else source_options.given()
        changes |= {} if source is None else {"source": source}
        changes |= {} if source_options.ttl is None else {"ttl": source_options.ttl}
        return checked(Entry, **{**dict(entry), **changes})

    entry = open_vault(settings).change(name, edit)
    warnings = list(_warnings(name, entry))
    if as_json:
        print_json_lines([{**_data(name, entry), "warnings": warnings}])
        return
    print_note(f"Credential {name}: {printable(str(entry.bindings))}, from {printable(str(entry.source))}.")
    _print_warnings(warnings)


@app.command("list", epilog="Example:  interlock vault list --json")
@takes(store_settings)
def list_credentials(settings: Settings, as_json: AsJson = False) -> None:  # noqa: FBT002
    """List the credentials: their placeholders, where they may go, and where their values come from."""
    document = open_vault(settings).read()
    if as_json:
        print_json_lines(_data(name, entry) for name, entry in document.credentials.items())
        return
    rows = [
        (name, placeholders.shortened(one.placeholder), printable(str(one.bindings)), printable(str(one.source)))
        for name, one in document.credentials.items()
    ]
    empty = "No credentials yet; `interlock vault add NAME --file PATH --host HOST` adds one."
    print_table(("credential", "placeholder", "may go to", "source"), rows, empty)


@app.command(epilog="Example:  interlock vault show github --json")
@takes(store_settings)
def show(settings: Settings, name: Name, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Show a credential: its placeholder, bindings and source, but never its value."""
    entry = known(open_vault(settings).read(), name)
    if as_json:
        print_json_lines([_data(name, entry)])
        return
    bindings, source = entry.bindings, entry.source
    command = shlex.join(source.argv) if isinstance(source, CommandSource) else None
    pairs = {
        "placeholder": entry.placeholder,
        "hosts": ", ".join(bindings.hosts) or "none: it goes nowhere",
        "tools": ", ".join(bindings.tools) or "any request",
        "agents": ", ".join(bindings.agents) or "all",
        "places": ", ".join(bindings.places),
        "plain http": "to any of its hosts" if bindings.plain else "to this machine only",
        "variable": _variable(bindings),
        "source": f"command {command}, at most every {entry.ttl:g} s" if command else str(source),
        "added": f"{format_time(entry.added)} UTC",
    }
    print_pairs((what, printable(value)) for what, value in pairs.items())
    _print_warnings(list(_warnings(name, entry)))


@app.command(epilog="Example:  export GITHUB_TOKEN=$(interlock vault placeholder github)")
@takes(store_settings)
def placeholder(settings: Settings, name: Name, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Print a credential's placeholder alone, for scripts and configuration files."""
    made = known(open_vault(settings).read(), name).placeholder
    if as_json:
        print_json_lines([{"credential": name, "placeholder": made}])
    else:
        typer.echo(made)


@app.command(epilog="Example:  interlock vault revoke github")
@takes(store_settings)
def revoke(settings: Settings, name: Name, as_json: AsJson = False) -> None:  # noqa: FBT002
    """Revoke a credential: its placeholder is refused from now on, for ever. The value is for its issuer to revoke."""
    stone = open_vault(settings).revoke(name)
    if as_json:
        print_json_lines([{"credential": name, "placeholder": stone.placeholder, "revoked": True}])
        return
    print_note(f"Credential {name} revoked. Requests with its placeholder are refused from now on.")
    print_note("The value is still where it came from, and still opens what it opened: revoke it at its issuer, too.")


@app.command("test", epilog="Example:  interlock vault test github")
@takes(store_settings)
def try_sources(
    settings: Settings,
    name: Annotated[list[str] | None, typer.Argument(help="The credentials' names; default: all.")] = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Ask the sources for their values, and say how long each value is and how long it took; never the value.

    The sources are asked as this user and in this environment, which may be others than the proxy's.

    Exit code: 0 if every source gave a value, 1 if one did not.
    """
    document = open_vault(settings).read()
    tried = [_try(each, known(document, each)) for each in name or document.credentials]
    if as_json:
        print_json_lines(tried)
    else:
        rows = [
            (
                one["credential"],
                Text("fails", "bold red") if one["error"] else Text("works", "green"),
                printable(one["error"] or f"{one['bytes']} bytes"),
                f"{one['seconds']:.2f} s",
            )
            for one in tried
        ]
        print_table(("credential", "source", "what it gave", "took"), rows, "No credentials yet.", right=("took",))
    sys.stdout.flush()
    raise typer.Exit(1 if any(one["error"] for one in tried) else 0)


def _try(name: str, entry: Entry) -> dict[str, Any]:
    start, problem, size = time.monotonic(), None, None
    try:
        size = try_source(entry.source, os.environ)
    except SourceError as error:
        problem = str(error)
    seconds = round(time.monotonic() - start, 3)
    return {"credential": name, "source": entry.source.kind, "bytes": size, "seconds": seconds, "error": problem}


def _data(name: str, entry: Entry) -> dict[str, Any]:
    return {"credential": name, **entry.model_dump(mode="json")}


def _variable(bindings: Bindings) -> str:
    if bindings.variable is None:
        return "none"
    who = f"servers {', '.join(bindings.servers)}" if bindings.servers else "agents"
    return f"{bindings.variable}, of {who}"


def _print_warnings(warnings: Sequence[str]) -> None:
    for one in warnings:
        print_note(f"Warning: {printable(one)}")


def _warnings(name: str, entry: Entry) -> Iterator[str]:
    """Yield what a person should know of a credential. The sources of commands and variables are not asked."""
    if not entry.bindings.hosts:
        yield f"it is bound to no host and goes nowhere; `interlock vault bind {name} --host HOST` binds it"
    if entry.bindings.servers and entry.bindings.tools:
        mend = f"`interlock vault bind {name} --tool ''`"
        yield f"a server's own requests are no calls of a tool, so they do not get it; {mend} takes the tools away"
    match entry.source:
        case FileSource(path=path):
            yield from _file_warnings(entry.source, path)
        case EnvSource(variable=variable):
            yield f"the proxy finds {variable} if it is set in its own environment, at its start"
        case CommandSource():
            pass


def _file_warnings(source: FileSource, path: str) -> Iterator[str]:
    try:
        try_source(source, {})
    except SourceError as error:
        yield f"{error}; requests with the placeholder are refused until that is mended"
    if (open_to := exposure(path)) is not None:
        yield f"{open_to[0]}; run: {open_to[1]}"
    elif is_own(path):
        yield (
            f"programs of this user may read {path}, and so may an agent that is not confined; `interlock confine` and "
            "sandboxes hide it"
        )
