"""`interlock up`: run the proxy."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

# First: log_setup imports structlog without rich, which the proxy does not need and which is slow to import.
from proxy.system import gc_tuning, lean_imports, log_setup

# isort: split

from proxy.agent.env import SHOWN, ProxyEndpoint, proxy_url, through_proxy
from proxy.commands.console_link import make_link
from proxy.commands.env import shell_line
from proxy.commands.options import ConfigFile
from proxy.config import LISTS, Settings, load_settings
from proxy.system.run_file import RunningProxy

EPILOG = """
Examples:
  interlock up
  interlock up --profile strict
  interlock up --listen 0.0.0.0:8080 --policy policies/
  interlock up --mode reverse:https://mcp.example.com --upstream-ca corp.pem
  interlock up --workers 4 --health-listen 0.0.0.0:8081
  interlock up --take-over
"""


UpJson = Annotated[
    bool, typer.Option("--json", help="Print where it listens as one JSON object, and log lines and errors as JSON.")
]
TakesOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Take the sockets of the proxy that runs on the state folder, if one does, once this one can serve.",
    ),
]
# What the command line parses a setting as; all others are text, which the settings parse themselves.
_TYPES = {"int": int, "float": float, "bool": bool, "Seconds": float, "UserPath": Path, "UserPath | None": Path}


def _parameter(name: str) -> inspect.Parameter:
    kind: Any = list[str] if name in LISTS else _TYPES.get(Settings.__annotations__[name], str)
    flag = f"--{name.replace('_', '-')}"
    flags = f"{flag}/--no-{flag[2:]}" if kind is bool else flag
    option = typer.Option(flags, help=Settings.model_fields[name].description, show_default=False)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def up(**flags: Any) -> None:
    """Run the proxy until SIGTERM or Ctrl-C."""
    config, as_json, take_over = (flags.pop(name) for name in ("config", "as_json", "take_over"))
    given = {name: value for name, value in flags.items() if value not in (None, [])}
    settings = load_settings(given, config_file=config).settings
    log_setup.configure(settings.log_level, "json" if as_json else settings.log_format)
    if not as_json:
        _announce_first_start(settings)
    gc_tuning.pause_collection()
    lean_imports.import_only_what_is_used()
    from proxy.runtime.supervisor import Supervisor  # noqa: PLC0415  imports mitmproxy, which is slow

    def announce(running: RunningProxy) -> None:
        if as_json:
            _print(json.dumps({"running": True, **asdict(running)}))
            return
        _announce(running)
        _announce_console(running, settings)

    Supervisor(settings, take_over=take_over).run(announce)


# One flag per setting, from the settings themselves, so that none is forgotten. `trace` is about stdio servers, which
# `up` does not run.
up.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # typer reads it
    [
        *(_parameter(name) for name in Settings.model_fields if name != "trace"),
        inspect.Parameter("take_over", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=TakesOver),
        inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigFile),
        inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=UpJson),
    ]
)


def _announce_console(running: RunningProxy, settings: Settings) -> None:
    if running.console is None:
        return
    # Not into a file or a journal unless that is wanted: for its ten minutes, whoever reads the link can use it.
    wanted = {"always": True, "never": False}.get(settings.console_link, sys.stdout.isatty())
    link = make_link(running, settings.state_dir, None) if wanted else None
    shown = f"{link} (works once, for 10 minutes)" if link else f"{running.console} (`interlock console` opens it)"
    _print(f"Console: {shown}")


def _announce(running: RunningProxy) -> None:
    if running.mode == "regular":
        files = [str(Path(running.ca).with_name(name)) for name in ("bundle.pem", "node-proxy.cjs")]
        changes = through_proxy(ProxyEndpoint(proxy_url(running.listen), running.ca, *files))
        command = own_command(sys.argv[0])
        lines = [
            f"interlock is listening on {running.listen} (policy {running.policy}).",
            "Next, in another terminal:",
            f"  {command} doctor          # try the way through",
            f"  {command} call URL        # the tools of an MCP server",
            f"  {command} exec -- AGENT   # an agent through it, or: confine",
            "Or set in the agent's shell (`interlock env` prints more):",
            *(f"  {shell_line('sh', name, changes[name])}" for name in SHOWN),
        ]
    else:
        lines = [f"interlock is listening on {running.listen} ({running.mode}, policy {running.policy})."]
    _print("\n".join(lines))


def own_command(program: str) -> str:
    """Return how to start this command again from a shell: by its name where the shell would find it."""
    found = shutil.which("interlock")
    path = Path(program)
    if path.name != "interlock" or (found is not None and Path(found).resolve() == path.resolve()):
        return "interlock"
    return shlex.quote(program)


def _announce_first_start(settings: Settings) -> None:
    if sys.stderr.isatty() and not (settings.state_dir / "cache").is_dir():
        sys.stderr.write(f"First start on {settings.state_dir}: makes a CA and compiles the detectors.\n")


def _print(text: str) -> None:
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError:
        # Whoever read it is gone, and a proxy need not end for that. Python would try again at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
