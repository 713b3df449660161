"""Where the proxy is that an agent is to go through: the options for it, and how it is found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from proxy.agent.env import ProxyEndpoint, proxy_url
from proxy.config import AGENT_TOKEN_ENV, Settings, load_settings
from proxy.errors import ConfigError
from proxy.identity.ca import Authority
from proxy.identity.token_file import AgentTokens
from proxy.sandbox.process_reaper import PR_SET_PDEATHSIG, prctl
from proxy.system import run_file

START_SECONDS = 60.0
NOT_STARTED = 125
"""Exit code where the agent was not started for a reason of ours; 126 and 127 are its own program's, as in shells."""

Listen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="The proxy's address as the agent reaches it; default: that of the proxy that runs on the state folder.",
        show_default=False,
    ),
]
CaFolder = Annotated[
    Path | None,
    typer.Option(
        "--ca-folder",
        help="Folder where the agent finds ca.pem and bundle.pem; default: the state folder's.",
        show_default=False,
    ),
]
Agent = Annotated[
    str | None,
    typer.Option(help=f"Call in this agent's name, with its token from {AGENT_TOKEN_ENV} or --token-file."),
]
TokenFile = Annotated[Path | None, typer.Option("--token-file", help="File with the agent's token.")]


Up = Annotated[
    bool,
    typer.Option("--up", help="Where no proxy runs, start one for as long as the command runs, with all settings."),
]


class ProxyOptions(NamedTuple):
    """What the options say."""

    listen: str | None = None
    ca_folder: Path | None = None
    agent: str | None = None
    token_file: Path | None = None
    state_dir: Path | None = None
    config: Path | None = None
    up: bool = False


class FoundProxy(NamedTuple):
    """A proxy, and who calls through it."""

    settings: Settings
    address: str
    agent: str | None
    token: str | None
    policy: str | None = None
    """The policy that the proxy has in force, where that is known."""

    @property
    def credentials(self) -> tuple[str, str] | None:
        """The agent's name and token, where it has one."""
        return (self.agent, self.token) if self.agent and self.token else None


def find_running(options: ProxyOptions) -> FoundProxy:
    """Find the proxy that is to be used now: where the options say, else by the note that a running one leaves.

    Raises ConfigError where none runs, where it is not one for HTTPS_PROXY, and
    where the agent's token is not there or not the agent's.
    """
    settings = _settings(options)
    token = _token(options, settings)
    if options.listen is not None:
        return FoundProxy(settings, settings.listen, options.agent, token)
    running = run_file.read(settings.state_dir) or (
        start_proxy(settings.state_dir, options.config) if options.up else None
    )
    if running is None:
        raise ConfigError(
            f"no proxy runs on {settings.state_dir}; start one with `interlock up` or --up, "
            "or say where one is with --state-dir or --listen"
        )
    _check_mode(running)
    return FoundProxy(settings, running.listen, options.agent, token, _policy(running))


def _policy(running: run_file.Running) -> str | None:
    """Return the path of a proxy's policy, which may be as seen from the folder that the proxy runs in."""
    path = Path(running.policy)
    try:
        return str(path if path.is_absolute() else Path(f"/proc/{running.pid}/cwd").resolve(strict=True) / path)
    except OSError:
        return None


def find_expected(options: ProxyOptions) -> FoundProxy:
    """Find the proxy that is to be used some time: the one that runs, else where it would listen."""
    settings = _settings(options)
    token = _token(options, settings)
    running = None if options.listen else run_file.read(settings.state_dir)
    if running is not None:
        _check_mode(running)
    return FoundProxy(settings, running.listen if running else settings.listen, options.agent, token)


def endpoint(options: ProxyOptions, found: FoundProxy, *, here: bool = True) -> ProxyEndpoint:
    """Say how an agent gets in; `here`: on this machine, where the CA's files must be.

    Raises ConfigError where they are not. A folder that is named may be there for
    the agent alone, and of a proxy that is named the CA cannot be made up.
    """
    authority = Authority(found.settings.state_dir)
    folder = (options.ca_folder.expanduser() if options.ca_folder else authority.folder).absolute()
    if options.ca_folder is None and not (here and options.listen):
        authority.ensure()
    missing = [name for name in ("ca.pem", "bundle.pem") if here and not (folder / name).is_file()]
    if missing:
        raise ConfigError(
            f"there is no {missing[0]} in {folder}, by which the agent could trust the proxy; "
            "say with --ca-folder where those of the proxy's ca folder are"
        )
    url = proxy_url(found.address, options.agent, found.token)
    return ProxyEndpoint(url, str(folder / "ca.pem"), str(folder / "bundle.pem"))


def _settings(options: ProxyOptions) -> Settings:
    flags = {"state_dir": options.state_dir, "listen": options.listen}
    return load_settings(flags, config_file=options.config).settings


def _check_mode(running: run_file.Running) -> None:
    if running.mode != "regular":
        raise ConfigError(
            f"the proxy on {running.listen} runs in mode {running.mode!r}, and agents are sent through one in mode "
            "'regular'; start one with `interlock up --mode regular`, or say where one is with --listen"
        )


def _token(options: ProxyOptions, settings: Settings) -> str | None:
    if options.agent is None:
        if options.token_file is not None:
            raise ConfigError("--token-file is there without --agent; say whose token it is")
        return None
    token = options.token_file.read_text().strip() if options.token_file else os.environ.get(AGENT_TOKEN_ENV)
    if not token:
        raise ConfigError(
            f"agent {options.agent!r} needs its token, in {AGENT_TOKEN_ENV} or a --token-file; "
            f"`interlock agents add {options.agent}` gives one"
        )
    if options.listen is None and not AgentTokens(settings.state_dir).verify(options.agent, token):
        raise ConfigError(
            f"that is not the token of agent {options.agent!r}, or there is no such agent on {settings.state_dir}; "
            "`interlock agents list` shows who is"
        )
    return token


def start_proxy(state_dir: Path, config: Path | None) -> run_file.Running:
    """Start a proxy that ends with this process, whatever this process becomes.

    It listens on a port of its own and logs to a file in the state folder. Raises
    ConfigError with its last words where it does not start.
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
            start_new_session=True,  # a terminal's Ctrl-C is the agent's
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509  we have one thread
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        running = run_file.read(state_dir)
        if running is not None and running.pid == process.pid:
            process.returncode = 0  # it is left to itself: nobody here waits for it
            return running
        time.sleep(0.02)
    process.kill()
    process.wait()
    said = (log.read_text(errors="replace").strip().splitlines() or ["nothing"])[-1]
    raise ConfigError(f"the proxy did not start: {said.removeprefix('error: ')} (all it said is in {log})")
