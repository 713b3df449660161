"""Where the proxy is that an agent is to go through: the options for it, and how it is found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from proxy import runfile
from proxy.agent_env import Entrance, proxy_url
from proxy.agents import AgentBook
from proxy.ca import Authority
from proxy.config import AGENT_TOKEN_ENV, Settings, load_settings
from proxy.errors import ConfigError

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


class Asked(NamedTuple):
    """What the options say."""

    listen: str | None = None
    ca_folder: Path | None = None
    agent: str | None = None
    token_file: Path | None = None


class Found(NamedTuple):
    """A proxy, and who calls through it."""

    settings: Settings
    address: str
    entrance: Entrance
    agent: str | None
    token: str | None
    policy: str | None
    """The policy that the proxy has in force, where that is known."""


def find(asked: Asked, state_dir: Path | None, config: Path | None, *, must_run: bool) -> Found:
    """Find the proxy: where the options say, else by the note that a running one leaves.

    Raises ConfigError where none runs and one must, where it is not one for
    HTTPS_PROXY, and where the agent's token is not there or not the agent's.
    """
    flags = {"state_dir": state_dir, "listen": asked.listen}
    settings = load_settings(flags, config_file=config).settings
    running = None if asked.listen else runfile.read(settings.state_dir)
    if running is None and asked.listen is None and must_run:
        raise ConfigError(
            f"no proxy runs on {settings.state_dir}; start one with `interlock up`, "
            "or say where one is with --state-dir or --listen"
        )
    if running is not None and running.mode != "regular":
        raise ConfigError(
            f"the proxy on {settings.state_dir} runs in mode {running.mode!r}, and agents are sent through one in "
            "mode 'regular'; start one with `interlock up --mode regular`, or say where one is with --listen"
        )
    address = running.listen if running else settings.listen
    token = _token(asked, settings)
    ca = _authority(asked, settings)
    url = proxy_url(address, asked.agent, token)
    entrance = Entrance(url, str(ca / "ca.pem"), str(ca / "bundle.pem"))
    return Found(settings, address, entrance, asked.agent, token, running.policy if running else None)


def _authority(asked: Asked, settings: Settings) -> Path:
    """Give the folder of the CA's certificate. One that is named may be there for the agent alone."""
    if asked.ca_folder is not None:
        return asked.ca_folder.expanduser().absolute()
    authority = Authority(settings.state_dir)
    authority.ensure()
    return authority.folder.absolute()


def _token(asked: Asked, settings: Settings) -> str | None:
    if asked.agent is None:
        if asked.token_file is not None:
            raise ConfigError("--token-file is there without --agent; say whose token it is")
        return None
    token = asked.token_file.read_text().strip() if asked.token_file else os.environ.get(AGENT_TOKEN_ENV)
    if not token:
        raise ConfigError(
            f"agent {asked.agent!r} needs its token, in {AGENT_TOKEN_ENV} or a --token-file; "
            f"`interlock agents add {asked.agent}` gives one"
        )
    if asked.listen is None and not AgentBook(settings.state_dir).verify(asked.agent, token):
        raise ConfigError(
            f"that is not the token of agent {asked.agent!r}, or there is no such agent on {settings.state_dir}; "
            "`interlock agents list` shows who is"
        )
    return token
