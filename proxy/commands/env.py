"""`interlock env`: prints the variables that send an agent through the proxy."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Annotated, Literal

import typer

from proxy.agent.env import through_proxy
from proxy.commands.options import takes
from proxy.commands.proxy_address import EndpointOptions, endpoint, find_expected
from proxy.errors import ConfigError

EPILOG = """
Examples:
  eval "$(interlock env)"
  interlock env --shell fish | source
  interlock env --shell powershell | Out-String | Invoke-Expression
  interlock env --shell docker --listen interlock:8080 --ca-folder /interlock-ca > agent.env
"""
type Shell = Literal["sh", "fish", "powershell", "docker"]


@takes(EndpointOptions)
def env(
    options: EndpointOptions,
    shell: Annotated[Shell, typer.Option(help="Syntax to print; docker: a file for `docker run --env-file`.")] = "sh",
) -> None:
    """Print the environment variables that send an agent through the proxy.

    They also make programs trust the proxy's CA, and unset NO_PROXY. Use them in the agent's
    shell or container. A program can ignore its environment; with `interlock confine` it cannot
    bypass the proxy.
    """
    for name, value in through_proxy(endpoint(options, find_expected(options), here=False)).items():
        typer.echo(shell_line(shell, name, value))


def shell_line(shell: Shell, name: str, value: str | None) -> str:
    """Return the line that sets a variable, or unsets it for None. Raises ConfigError for a value it cannot quote."""
    # A line break in a path would end the assignment, and the rest would run as a command in the caller's shell.
    if value is not None and not value.isprintable():
        raise ConfigError(f"{name} would be {value!r}, which cannot be written in one line; use another folder")
    if value is None:
        return _UNSET[shell].format(name=name)
    return _SET[shell].format(name=name, value=_QUOTED[shell](value))


_SET: dict[Shell, str] = {
    "sh": "export {name}={value}",
    "fish": "set -gx {name} {value}",
    "powershell": "$env:{name} = {value}",
    "docker": "{name}={value}",
}
_UNSET: dict[Shell, str] = {
    "sh": "unset {name}",
    "fish": "set -e {name}",
    "powershell": "Remove-Item -ErrorAction SilentlyContinue Env:{name}",
    "docker": "{name}=",  # an env file can empty a variable of the image, not remove it
}
_QUOTED: dict[Shell, Callable[[str], str]] = {
    "sh": shlex.quote,
    "fish": lambda text: "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'",
    "powershell": lambda text: "'" + text.replace("'", "''") + "'",
    "docker": lambda text: text,
}
