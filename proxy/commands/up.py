"""`interlock up`: run the proxy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

# First: log_setup imports structlog without rich, which the proxy never needs and which takes long to import.
from proxy.system import gc_tuning, lean_imports, log_setup

# isort: split

from proxy.agent.env import SHOWN, ProxyEndpoint, proxy_url, through_proxy
from proxy.commands.env import shell_line
from proxy.commands.options import ConfigFile, StateDir
from proxy.config import Settings, load_settings
from proxy.system.run_file import Running

EPILOG = """
Examples:

  interlock up

  interlock up --listen 0.0.0.0:8080 --policy policies/

  interlock up --mode reverse:https://mcp.example.com --upstream-ca corp.pem

  interlock up --workers 4 --health-listen 0.0.0.0:8081
"""


def _help(name: str) -> str:
    return Settings.model_fields[name].description or ""


def _option(name: str, *flags: str) -> Any:
    return typer.Option(*(flags or (f"--{name.replace('_', '-')}",)), help=_help(name), show_default=False)


def up(
    listen: Annotated[str | None, _option("listen")] = None,
    mode: Annotated[str | None, _option("mode")] = None,
    policy: Annotated[Path | None, _option("policy")] = None,
    state_dir: StateDir = None,
    database_url: Annotated[str | None, _option("database_url")] = None,
    upstream_ca: Annotated[Path | None, _option("upstream_ca")] = None,
    default_agent: Annotated[str | None, _option("default_agent")] = None,
    agent_auth: Annotated[str | None, _option("agent_auth")] = None,
    operator_listen: Annotated[str | None, _option("operator_listen")] = None,
    workers: Annotated[int | None, _option("workers")] = None,
    health_listen: Annotated[str | None, _option("health_listen")] = None,
    ready_lag: Annotated[float | None, _option("ready_lag")] = None,
    header_limit: Annotated[str | None, _option("header_limit")] = None,
    header_timeout: Annotated[float | None, _option("header_timeout")] = None,
    body_limit: Annotated[str | None, _option("body_limit")] = None,
    body_timeout: Annotated[float | None, _option("body_timeout")] = None,
    large_uploads: Annotated[list[str] | None, _option("large_uploads")] = None,
    response_limit: Annotated[str | None, _option("response_limit")] = None,
    event_limit: Annotated[str | None, _option("event_limit")] = None,
    connection_limit: Annotated[int | None, _option("connection_limit")] = None,
    stream_limit: Annotated[int | None, _option("stream_limit")] = None,
    idle_timeout: Annotated[float | None, _option("idle_timeout")] = None,
    drain_timeout: Annotated[float | None, _option("drain_timeout")] = None,
    audit_log_limit: Annotated[str | None, _option("audit_log_limit")] = None,
    on_audit_failure: Annotated[str | None, _option("on_audit_failure")] = None,
    retention_days: Annotated[float | None, _option("retention_days")] = None,
    checkpoint_file: Annotated[Path | None, _option("checkpoint_file")] = None,
    checkpoint_command: Annotated[str | None, _option("checkpoint_command")] = None,
    checkpoint_seconds: Annotated[float | None, _option("checkpoint_seconds")] = None,
    commit_keys: Annotated[Path | None, _option("commit_keys")] = None,
    sampler_url: Annotated[str | None, _option("sampler_url")] = None,
    sampler_model: Annotated[str | None, _option("sampler_model")] = None,
    sampler_key_file: Annotated[Path | None, _option("sampler_key_file")] = None,
    sampler_timeout: Annotated[float | None, _option("sampler_timeout")] = None,
    fast: Annotated[bool | None, _option("fast", "--fast/--no-fast")] = None,
    log_format: Annotated[str | None, _option("log_format")] = None,
    log_level: Annotated[str | None, _option("log_level")] = None,
    config: ConfigFile = None,
) -> None:
    """Run the proxy until it is told to stop (SIGTERM or Ctrl-C)."""
    flags = {
        name: value for name, value in locals().items() if name in Settings.model_fields and value not in (None, [])
    }
    settings = load_settings(flags, config_file=config).settings
    log_setup.configure(settings.log_level, settings.log_format)
    gc_tuning.pause_collection()
    lean_imports.import_only_what_is_used()
    from proxy.runtime.supervisor import Supervisor  # noqa: PLC0415  mitmproxy is slow to import, and --help need not wait

    Supervisor(settings).run(_announce)


def _announce(running: Running) -> None:
    if running.mode == "regular":
        changes = through_proxy(
            ProxyEndpoint(proxy_url(running.listen), running.ca, str(Path(running.ca).with_name("bundle.pem")))
        )
        lines = [
            f"interlock is listening on {running.listen} (policy {running.policy}).",
            "Start the agent with `interlock confine -- COMMAND` or `interlock exec -- COMMAND`;",
            "or set in its shell (`interlock env` prints more):",
            *(f"  {shell_line('sh', name, changes[name])}" for name in SHOWN),
        ]
    else:
        lines = [f"interlock is listening on {running.listen} ({running.mode}, policy {running.policy})."]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
