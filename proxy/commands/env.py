"""`interlock env`: prints the variables that send an agent through the proxy."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Annotated, Literal

import typer

from proxy.agent.env import through_proxy
from proxy.commands.options import AsJson, takes
from proxy.commands.proxy_address import EndpointOptions, endpoint, find_expected, placeholders_for
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
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Print the environment variables that send an agent through the proxy.

    They also make programs trust the proxy's CA, and unset NO_PROXY. Use them in the agent's
    shell or container. A program can ignore its environment; with `interlock confine` it cannot
    bypass the proxy.
    """
    found = find_expected(options)
    changes = through_proxy(endpoint(options, found, here=False)) | placeholders_for(found)
    if as_json:
        from proxy.commands.terminal import print_json_lines  # noqa: PLC0415  rich, which `up` does without

        print_json_lines({"variable": name, "value": value} for name, value in changes.items())
        return
    for name, value in changes.items():
        typer.echo(shell_line(shell, name, value))


def shell_line(shell: Shell, name: str, value: str | None) -> str:
    """Return the line that sets a variable, or unsets it for None. Raises ConfigError for a value it cannot quote."""
    # A line break in a path would end the assignment, and the rest would run as a command in the caller's shell.
    if value is not None and not value.isprintable():
        raise ConfigError(f"{name} would be {value!r}, which cannot be written in one line; use another folder")
    set_it, unset_it, quote = _SYNTAX[shell]
    return unset_it.format(name=name) if value is None else set_it.format(name=name, value=quote(value))


def _quote_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _quote_powershell(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# How a shell sets and unsets a variable, and quotes a value.
_SYNTAX: dict[Shell, tuple[str, str, Callable[[str], str]]] = {
    "sh": ("export {name}={value}", "unset {name}", shlex.quote),
    "fish": ("set -gx {name} {value}", "set -e {name}", _quote_fish),
    "powershell": ("$env:{name} = {value}", "Remove-Item -ErrorAction SilentlyContinue Env:{name}", _quote_powershell),
    "docker": ("{name}={value}", "{name}=", str),  # an env file can empty a variable of the image, not remove it
}
