"""`interlock confine`: runs a command in a network that only reaches the proxy."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from proxy.agent.env import ProxyEndpoint, change, reached, without_proxy
from proxy.commands.exec import exit_not_started
from proxy.commands.lazy import spaced
from proxy.commands.options import AsJson, takes
from proxy.commands.proxy_address import (
    EndpointOptions,
    FoundProxy,
    ProxyOptions,
    Up,
    endpoint,
    find_running,
    placeholders_for,
)
from proxy.commands.terminal import print_json_lines
from proxy.config import DATABASE_URL_FILE, config_path, split_address
from proxy.confine.file_view import FileView, plan_file_view
from proxy.confine.firewall import FORWARDER_PORT, RESOLVER_PORT, ruleset
from proxy.confine.kernel_settings import explain
from proxy.confine.namespace_setup import bind_sockets
from proxy.errors import ConfigError, InterlockError
from proxy.sandbox.namespaces import listening_sockets, sockets_below
from proxy.sandbox.server_process import plan_launch
from proxy.vault.source_files import hidden_sources

EPILOG = """
Examples:
  interlock confine -- claude
  interlock confine --up -- claude
  interlock confine --agent build-bot --token-file ~/.build-bot.token -- python agent.py
  interlock confine --host-port 8000 -- claude
  interlock confine --keep-socket "$SSH_AUTH_SOCK" -- bash
  interlock confine run -- gateway --of-your-own
"""
# Folders to search for unix sockets, and how deep: the kernel lists only those of this network namespace.
SOCKETS = (("/run", 5), ("/tmp", 2))  # noqa: S108
ErrorsAsJson = Annotated[bool, typer.Option("--json", help="Print errors as JSON on stderr; stdout is the command's.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="Port that TCP connections are redirected to.")]
ResolverPort = Annotated[int, typer.Option(min=1, max=65535, help="Port that DNS queries are redirected to.")]


class _RunByDefault(TyperGroup):
    """Runs `confine -- COMMAND` as `confine run -- COMMAND`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault,
    help="Run an agent in a network that only reaches the proxy.\n\nUsually: `interlock confine -- COMMAND`.",
    no_args_is_help=True,
    epilog=spaced(EPILOG),
)


def _say(text: str) -> None:
    sys.stderr.write(f"interlock confine: {text}\n")
    sys.stderr.flush()


@app.command(epilog=spaced(EPILOG))
@takes(EndpointOptions)
def run(
    options: EndpointOptions,
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The agent's command and arguments, after --.")
    ],
    keep_socket: Annotated[
        list[str] | None,
        typer.Option(help="Unix socket that the agent may use; its service can act for the agent."),
    ] = None,
    host_port: Annotated[
        list[int] | None,
        typer.Option(min=1, max=65535, help="Port on localhost that the agent may reach through the proxy."),
    ] = None,
    up: Up = False,  # noqa: FBT002
    as_json: ErrorsAsJson = False,  # noqa: FBT002
) -> None:
    """Run an agent in a network that only reaches the proxy; its programs cannot bypass it.

    Every TCP connection becomes a tunnel through the proxy. DNS names are answered inside. UDP, ICMP
    and all else are dropped. The agent needs no proxy variables. Unix sockets of services and
    the proxy's keys are hidden from it. Root is not needed. When the agent ends, all its processes end.

    Exit code: the command's, or 128 plus the signal that ended it; 127 if there is no such program,
    126 if it cannot be executed, 125 if it was not started because no proxy runs or this
    system does not allow confinement.
    """
    from proxy.confine.launch import Confinement, ConfinementError, confine  # noqa: PLC0415  not for --help

    try:
        found = find_running(options, up=up)
        way_in = endpoint(options, found, node=False)
        environ = change(os.environ, without_proxy(way_in) | placeholders_for(found))
        # Before anything is confined: a missing program must exit with 127, as in a shell.
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
        refused = ConfigError(f"{command[0]!r} was not started: {explain(str(error))}")
        exit_not_started("confine", refused, as_json=as_json)
    except (InterlockError, OSError) as error:
        exit_not_started("confine", error, as_json=as_json)
    raise typer.Exit(code)


def _files(options: EndpointOptions, found: FoundProxy, way_in: ProxyEndpoint, kept: list[str]) -> FileView:
    """Choose what to hide from the agent: services that could act for it, and the proxy's secrets."""
    for path in kept:
        if not Path(path).is_socket():
            raise ConfigError(f"--keep-socket {path!r} is not a socket; leave it out, or name an existing one")
    settings = found.settings
    # The CA's files lie in the state folder, which is hidden as a whole: they are handed in as copies.
    public = [Path(path) for path in (way_in.ca, way_in.bundle)]
    url_file = os.environ.get(DATABASE_URL_FILE)
    secrets = [settings.commit_keys, settings.sampler_key_file, options.token_file]
    secrets += [Path(url_file)] if url_file else []
    # Besides our own: --ca-folder may point into the state folder of another proxy, whose keys must be hidden too.
    ca = public[0].parent.resolve()
    states = {settings.state_dir.resolve()}
    states |= {ca.parent} if ca.name == "ca" and (ca.parent / "keys").is_dir() else set()
    # Values of credentials, of which the agent has placeholders.
    folders, files = hidden_sources(settings.state_dir)
    # Read-only for the agent: with write access it could edit the policy or settings that confine it.
    relied_on = [config_path(options.config, os.environ), Path(found.policy) if found.policy else None]
    relied_on += [settings.checkpoint_file, settings.upstream_ca]
    return plan_file_view(
        user=os.geteuid(),
        listening=[*listening_sockets(), *(path for at, deep in SOCKETS for path in sockets_below(at, deep))],
        runtime_dir=os.environ.get("XDG_RUNTIME_DIR"),
        kept=[str(Path(path).resolve()) for path in kept],
        state_dirs=[*(str(state) for state in states), *folders],
        given={str(path.resolve()): path.read_bytes() for path in public if states & {*path.resolve().parents}},
        secrets=[*(str(path.resolve()) for path in secrets if path is not None and path.is_file()), *files],
        unwritable=[str(path.resolve()) for path in relied_on if path is not None],
    )


@app.command(epilog="Example:  interlock confine rules --proxy-uid 10001 | nft -f -")
def rules(
    proxy_uid: Annotated[
        int | None, typer.Option(min=0, help="User ID of the proxy and the gateway, whose traffic is not redirected.")
    ] = None,
    port: Port = FORWARDER_PORT,
    resolver_port: ResolverPort = RESOLVER_PORT,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Print firewall rules for `nft -f -`, for an agent's container that shares the proxy's network.

    TCP connections of all users except --proxy-uid go to --port, and their DNS queries to
    --resolver-port, where `interlock confine gateway` listens. All other traffic is rejected.
    Without --proxy-uid these are the rules that `interlock confine` itself uses.
    """
    made = ruleset(port=port, resolver_port=resolver_port, proxy_uid=proxy_uid)
    if as_json:
        print_json_lines([{"rules": made}])
    else:
        typer.echo(made, nl=False)


@app.command(epilog="Example:  interlock confine gateway --listen 127.0.0.1:8080")
@takes(ProxyOptions)
def gateway(
    options: ProxyOptions,
    port: Port = FORWARDER_PORT,
    resolver_port: ResolverPort = RESOLVER_PORT,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Serve the traffic that `interlock confine rules` redirects: send it to the proxy, and answer DNS queries.

    Run it in the network of the agent's container, as the user given with --proxy-uid. It runs until
    SIGTERM or Ctrl-C.
    """
    from proxy.confine.forwarder import serve_gateway  # noqa: PLC0415

    found = find_running(options)
    sockets = bind_sockets(port, resolver_port)

    def announce() -> None:
        if as_json:
            print_json_lines([{"proxy": found.address, "port": port, "resolver_port": resolver_port}])
        else:
            ports = f"TCP on port {port}, DNS on port {resolver_port}"
            typer.echo(f"interlock sends connections to {found.address} ({ports}).")
        sys.stdout.flush()

    asyncio.run(serve_gateway(split_address(reached(found.address)), found.credentials, sockets, _say, announce))
