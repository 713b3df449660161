"""Finds the proxy that an agent should use: shared options of `exec`, `env` and `confine`, and the search itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from proxy.agent.env import NODE_OPTIONS, ProxyEndpoint, proxy_url
from proxy.commands.options import ConfigFile, StateDir
from proxy.config import Settings, load_settings
from proxy.core.secret_variables import AGENT_TOKEN_ENV
from proxy.errors import ConfigError
from proxy.identity.ca import Authority
from proxy.identity.token_file import AgentTokens
from proxy.sandbox.process_reaper import PR_SET_PDEATHSIG, prctl
from proxy.system import run_file
from proxy.vault.variables import agent_variables
from proxy.vault.vault_file import VaultFile

START_SECONDS = 60.0
NODE_SCRIPT = "node-proxy.cjs"
# Exit code if Interlock did not start the agent; 126 and 127 are about the agent's program, as in shells and `env`.
NOT_STARTED = 125

Listen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address at which the agent reaches the proxy; default: the proxy running on the state folder.",
        show_default=False,
    ),
]
CaFolder = Annotated[
    Path | None,
    typer.Option(
        help="Folder where the agent finds ca.pem and bundle.pem; default: in the state folder.", show_default=False
    ),
]
Agent = Annotated[
    str | None, typer.Option(help=f"Name of the agent; its token comes from {AGENT_TOKEN_ENV} or --token-file.")
]
TokenFile = Annotated[Path | None, typer.Option("--token-file", help="File with the agent's token.")]
Up = Annotated[bool, typer.Option("--up", help="If no proxy runs, start one that stops when the command ends.")]


@dataclass(frozen=True)
class ProxyOptions:
    """The options that name a proxy and the agent that calls through it."""

    listen: Listen = None
    agent: Agent = None
    token_file: TokenFile = None
    state_dir: StateDir = None
    config: ConfigFile = None


@dataclass(frozen=True)
class EndpointOptions(ProxyOptions):
    ca_folder: CaFolder = None


class FoundProxy(NamedTuple):
    settings: Settings
    address: str
    agent: str | None
    token: str | None
    policy: str | None = None  # path of the policy in force, if known

    @property
    def credentials(self) -> tuple[str, str] | None:
        return (self.agent, self.token) if self.agent and self.token else None


def find_running(options: ProxyOptions, *, up: bool = False) -> FoundProxy:
    """Return the proxy to use now: the one that --listen names, or the one running on the state folder.

    Raises ConfigError if none runs (and `up`, which starts one, is False), if it is not in mode `regular`, or if the
    agent's token is missing or wrong.
    """
    settings = _settings(options)
    token = _token(options, settings)
    if options.listen is not None:
        return FoundProxy(settings, settings.listen, options.agent, token)
    running = run_file.read(settings.state_dir) or (start_proxy(settings.state_dir, options.config) if up else None)
    if running is None:
        raise ConfigError(
            f"no proxy runs on {settings.state_dir}; start one with `interlock up` or --up, "
            "or name one with --state-dir or --listen"
        )
    _check_mode(running)
    return FoundProxy(settings, running.listen, options.agent, token, _policy(running))


def _policy(running: run_file.RunningProxy) -> str | None:
    if running.policy == "pushed":
        return None  # it has no file of its own
    # A relative path is relative to the proxy's working directory, not to ours.
    path = Path(running.policy)
    try:
        return str(path if path.is_absolute() else Path(f"/proc/{running.pid}/cwd").resolve(strict=True) / path)
    except OSError:
        return None


def find_expected(options: ProxyOptions) -> FoundProxy:
    """Return the proxy to use later: the running one, or the address where it would listen."""
    settings = _settings(options)
    token = _token(options, settings)
    running = None if options.listen else run_file.read(settings.state_dir)
    if running is not None:
        _check_mode(running)
    return FoundProxy(settings, running.listen if running else settings.listen, options.agent, token)


def endpoint(options: EndpointOptions, found: FoundProxy, *, here: bool = True, node: bool = True) -> ProxyEndpoint:
    """Return what the agent needs to use the proxy; `here`: it runs on this machine, so the CA's files must exist.

    `node`: so must the script for Node, which a confined agent does not need. Raises ConfigError if they do not.
    """
    authority = Authority(found.settings.state_dir)
    folder = (options.ca_folder.expanduser() if options.ca_folder else authority.folder).absolute()
    # Only our own CA is created here. A folder that the user names may exist in the agent's container only, and the
    # proxy that --listen names has a CA of its own.
    if options.ca_folder is None and not (here and options.listen):
        authority.ensure()
    needed = ("ca.pem", "bundle.pem", *([NODE_SCRIPT] if node else []))
    missing = [name for name in needed if here and not (folder / name).is_file()]
    if missing:
        raise ConfigError(
            f"there is no {missing[0]} in {folder}, which the agent needs to use and trust the proxy; "
            f"name the folder with the proxy's {', '.join(needed)} with --ca-folder"
        )
    url = proxy_url(found.address, options.agent, found.token)
    # A container has NODE_OPTIONS of its own, which are unknown here.
    present = os.environ.get(NODE_OPTIONS, "") if options.ca_folder is None or here else ""
    ca, bundle, script = (str(folder / name) for name in ("ca.pem", "bundle.pem", NODE_SCRIPT))
    return ProxyEndpoint(url, ca, bundle, script, present)


def placeholders_for(found: FoundProxy) -> dict[str, str | None]:
    """Return the variables in which the agent finds placeholders of credentials. Raises ConfigError."""
    entries = VaultFile(found.settings.state_dir).read().credentials
    credentials = [entry.credential(name) for name, entry in entries.items()]
    return dict(agent_variables(credentials, found.agent or found.settings.default_agent))


def _settings(options: ProxyOptions) -> Settings:
    flags = {"state_dir": options.state_dir, "listen": options.listen}
    return load_settings(flags, config_file=options.config).settings


def _check_mode(running: run_file.RunningProxy) -> None:
    if running.mode != "regular":
        raise ConfigError(
            f"the proxy on {running.listen} runs in mode {running.mode!r}, but agents need one in mode "
            "'regular'; start one with `interlock up --mode regular`, or name one with --listen"
        )


def _token(options: ProxyOptions, settings: Settings) -> str | None:
    if options.agent is None:
        if options.token_file is not None:
            raise ConfigError("--token-file needs --agent, to know whose token it is")
        return None
    token = options.token_file.read_text().strip() if options.token_file else os.environ.get(AGENT_TOKEN_ENV)
    if not token:
        raise ConfigError(
            f"agent {options.agent!r} needs its token in {AGENT_TOKEN_ENV} or --token-file; "
            f"`interlock agents add {options.agent}` creates one"
        )
    if options.listen is None and not AgentTokens(settings.state_dir).verify(options.agent, token):
        raise ConfigError(
            f"wrong token for agent {options.agent!r}, or no such agent on {settings.state_dir}; "
            "see `interlock agents list`"
        )
    return token


def start_proxy(state_dir: Path, config: Path | None) -> run_file.RunningProxy:
    """Start a proxy that ends with this process, and log to up.log in the state folder.

    Raises ConfigError with its last line of output if it does not start.
    """
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = state_dir / "up.log"
    words = [sys.executable, "-m", "proxy.cli", "up", "--listen", "127.0.0.1:0", "--mode", "regular"]
    words += ["--state-dir", str(state_dir), *(["--config", str(config)] if config else [])]
    with log.open("wb") as output:
        log.chmod(0o600)
        process = subprocess.Popen(  # noqa: S603
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C in the terminal is for the agent
            # By the kernel, not by us: `exec` replaces this process, and the new program knows nothing of the proxy.
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509  this process has one thread
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        running = run_file.read(state_dir)
        if running is not None and running.pid == process.pid:
            process.returncode = 0  # it keeps running: Popen must not warn that nobody waited for it
            return running
        time.sleep(0.02)
    process.kill()
    process.wait()
    said = (log.read_text(errors="replace").strip().splitlines() or ["nothing"])[-1]
    raise ConfigError(f"the proxy did not start: {said.removeprefix('error: ')} (see {log})")
