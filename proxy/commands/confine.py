"""`interlock confine`: a command whose only way out is the proxy."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from proxy.agent.env import ProxyEndpoint, change, reached, without_proxy
from proxy.commands.exec import refuse
from proxy.commands.options import ConfigFile, StateDir
from proxy.commands.proxy_address import (
    Agent,
    CaFolder,
    FoundProxy,
    Listen,
    ProxyOptions,
    TokenFile,
    Up,
    endpoint,
    find_running,
)
from proxy.config import DATABASE_URL_FILE, config_path, split_address
from proxy.confine.file_view import FileView, plan_file_view
from proxy.confine.firewall import FORWARDER_PORT, RESOLVER_PORT, ruleset
from proxy.confine.kernel_settings import explain
from proxy.confine.namespace_setup import bind_sockets
from proxy.errors import ConfigError, InterlockError
from proxy.sandbox.namespaces import listening_sockets, sockets_below
from proxy.sandbox.server_process import plan_launch

RUN_EPILOG = """
Examples:

  interlock confine -- claude

  interlock confine --up -- claude

  interlock confine --agent build-bot --token-file ~/.build-bot.token -- python agent.py

  interlock confine --host-port 8000 -- claude

  interlock confine --keep-socket "$SSH_AUTH_SOCK" -- bash

  interlock confine run -- gateway --of-your-own
"""
RULES_EPILOG = """
Example:

  interlock confine rules --proxy-uid 10001 | nft -f -
"""
GATEWAY_EPILOG = """
Example:

  interlock confine gateway --listen 127.0.0.1:8080
"""
SOCKETS = (("/run", 5), ("/tmp", 2))  # noqa: S108
"""Where to look for sockets besides, and how deep: the kernel tells of those that are in our own network alone."""
Port = Annotated[int, typer.Option(min=1, max=65535, help="Port that TCP connections are led to.")]
ResolverPort = Annotated[int, typer.Option(min=1, max=65535, help="Port that questions for names are led to.")]


class _RunByDefault(TyperGroup):
    """Takes `confine -- COMMAND` for `confine run -- COMMAND`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault,
    help="Run an agent where the only way out is the proxy.\n\n`interlock confine -- COMMAND` is all it takes.",
    no_args_is_help=True,
    epilog=RUN_EPILOG,
)


def _say(text: str) -> None:
    sys.stderr.write(f"interlock confine: {text}\n")
    sys.stderr.flush()


@app.command(epilog=RUN_EPILOG)
def run(
    command: Annotated[list[str], typer.Argument(help="The agent's command and its arguments, after --.")],
    keep_socket: Annotated[
        list[str] | None, typer.Option(help="A unix socket that the agent may use; it may act for the agent outside.")
    ] = None,
    host_port: Annotated[
        list[int] | None,
        typer.Option(min=1, max=65535, help="Port of this machine's localhost that is the agent's too, by the proxy."),
    ] = None,
    listen: Listen = None,
    ca_folder: CaFolder = None,
    agent: Agent = None,
    token_file: TokenFile = None,
    up: Up = False,  # noqa: FBT002
    state_dir: StateDir = None,
    config: ConfigFile = None,
) -> None:
    """Run an agent in a network that leads to the proxy and nowhere else, whatever its programs try.

    Every TCP connection goes to the proxy as a tunnel to where it was going; names
    are answered inside; UDP, ICMP and the rest go nowhere. No variable of a proxy
    is set, and none is needed. Unix sockets of services and the proxy's own keys
    are covered. It works for an ordinary user. Nothing of the agent outlives it.

    Exit code: the command's, or 128 and the number of the signal that ended it; 127
    where there is no such program, 126 where it cannot be executed; 125 where it
    was not started, because no proxy runs or the system does not let it be confined.
    """
    from proxy.confine.launch import Confinement, ConfinementError, confine  # noqa: PLC0415  not for --help

    try:
        options = ProxyOptions(listen, ca_folder, agent, token_file, state_dir, config, up)
        found = find_running(options)
        way_in = endpoint(options, found)
        environ = change(os.environ, without_proxy(way_in))
        launch = plan_launch(command, environ)
        confinement = Confinement(
            program=str(Path(launch.program).absolute()),
            argv=launch.argv,
            environ=environ,
            proxy=split_address(reached(found.address)),
            credentials=found.credentials,
            files=_files(options, found, way_in, keep_socket or []),
            folder=str(Path.cwd()),
            user=os.geteuid(),
            group=os.getegid(),
            host_ports=tuple(host_port or ()),
        )
        code = confine(confinement, _say)
    except ConfinementError as error:
        refuse("confine", ConfigError(f"{command[0]!r} was not started: {explain(str(error))}"))
    except (InterlockError, OSError) as error:
        refuse("confine", error)
    raise typer.Exit(code)


def _files(options: ProxyOptions, found: FoundProxy, way_in: ProxyEndpoint, kept: list[str]) -> FileView:
    """Say what is covered: whoever could act for the agent, and what is the proxy's alone."""
    for path in kept:
        if not Path(path).is_socket():
            raise ConfigError(f"--keep-socket {path!r} is no socket; leave it out, or name one that is there")
    settings = found.settings
    public = [Path(path) for path in (way_in.ca, way_in.bundle)]
    url_file = os.environ.get(DATABASE_URL_FILE)
    secrets = [
        settings.commit_keys,
        settings.sampler_key_file,
        options.token_file,
        Path(url_file) if url_file else None,
    ]
    states = _state_folders(settings.state_dir, public[0].parent)
    relied_on = [config_path(options.config, os.environ), Path(found.policy) if found.policy else None]
    relied_on += [settings.checkpoint_file, settings.upstream_ca]
    return plan_file_view(
        user=os.geteuid(),
        listening=[*listening_sockets(), *(path for at, deep in SOCKETS for path in sockets_below(at, deep))],
        runtime_dir=os.environ.get("XDG_RUNTIME_DIR"),
        kept=[str(Path(path).resolve()) for path in kept],
        state_dirs=[str(state) for state in states],
        given={str(path.resolve()): path.read_bytes() for path in public if states & {*path.resolve().parents}},
        secrets=[str(path.resolve()) for path in secrets if path is not None and path.is_file()],
        unwritable=[str(path.resolve()) for path in relied_on if path is not None],
    )


def _state_folders(own: Path, ca: Path) -> set[Path]:
    """Get the proxy's state folder: the one of the settings, and the one that a named folder of certificates is in."""
    named = ca.resolve().parent
    return {own.resolve(), *([named] if ca.resolve().name == "ca" and (named / "keys").is_dir() else [])}


@app.command(epilog=RULES_EPILOG)
def rules(
    proxy_uid: Annotated[
        int | None, typer.Option(min=0, help="User of the proxy and the gateway, whose own traffic is let out.")
    ] = None,
    port: Port = FORWARDER_PORT,
    resolver_port: ResolverPort = RESOLVER_PORT,
) -> None:
    """Print the firewall rules, for `nft -f -`: for a container that shares its network with the proxy's.

    All TCP of other users than --proxy-uid goes to --port and their questions for
    names to --resolver-port, where `interlock confine gateway` listens; all else is
    refused. Without --proxy-uid they are those that `interlock confine` uses itself.
    """
    typer.echo(ruleset(port=port, resolver_port=resolver_port, proxy_uid=proxy_uid), nl=False)


@app.command(epilog=GATEWAY_EPILOG)
def gateway(
    port: Port = FORWARDER_PORT,
    resolver_port: ResolverPort = RESOLVER_PORT,
    listen: Listen = None,
    agent: Agent = None,
    token_file: TokenFile = None,
    state_dir: StateDir = None,
    config: ConfigFile = None,
) -> None:
    """Serve what `interlock confine rules` redirects: connections go to the proxy, names are answered.

    Run it beside the proxy, as the user that the rules let out, in the network of the
    agent's container. It runs until it is told to stop.
    """
    from proxy.confine.forwarder import serve_gateway  # noqa: PLC0415

    found = find_running(ProxyOptions(listen, None, agent, token_file, state_dir, config))
    sockets = bind_sockets(port, resolver_port)

    def announce() -> None:
        typer.echo(f"interlock leads connections to {found.address} (port {port}, names on {resolver_port}).")
        sys.stdout.flush()

    asyncio.run(serve_gateway(split_address(reached(found.address)), found.credentials, sockets, _say, announce))
