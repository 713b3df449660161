"""Settings, read once at start. A flag overrides an environment variable, which overrides the settings file."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_serializer,
    model_validator,
)

from proxy.core.secret_variables import SECRET_VARIABLES
from proxy.errors import ConfigError
from proxy.sinks.any_sink import AnySink  # noqa: TC001  pydantic reads annotations when it runs
from proxy.sinks.settings import distinct, parse_sinks
from proxy.system.database_url import HIDDEN, check_database_url, shown
from proxy.system.package_data import DEFAULT_PROFILE, PROFILES, profile_file

if TYPE_CHECKING:
    from collections.abc import Mapping

ENV_PREFIX = "INTERLOCK_"
CONFIG_ENV = "INTERLOCK_CONFIG"
# Orchestrators pass secrets as files; a variable is visible in /proc and to every child process.
DATABASE_URL_FILE = "INTERLOCK_DATABASE_URL_FILE"
AGENT_TOKEN_FILE = "INTERLOCK_AGENT_TOKEN_FILE"  # noqa: S105  a variable's name
MAX_WORKERS = 64
CONFIG_FILE = Path("interlock.yaml")
_LISTEN = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:\[\]]+):(?P<port>\d{1,5})")
_REVERSE = re.compile(r"reverse:https?://(\[[0-9a-fA-F:.]+\]|[^/:\s]+)(:\d{1,5})?/?")
_CONSOLE_URL = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?/?")
_BASE_URL = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?(/[A-Za-z0-9._~%/-]*)?")


def _processors() -> int:
    # macOS has no affinity of processes.
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _listen(value: str) -> str:
    split_address(value)
    return value


def _mode(value: str) -> str:
    reverse = _REVERSE.fullmatch(value)
    if value in ("regular", "transparent") or (reverse and 0 < int((reverse[2] or ":1")[1:]) <= 65535):
        return value
    raise ValueError("write regular, transparent, or reverse:URL such as reverse:https://mcp.example.com")


def _base_url(value: str) -> str:
    if _BASE_URL.fullmatch(value):
        return value.rstrip("/")
    raise ValueError("write the URL before /chat/completions, such as https://llm.example.com/v1")


def _log_url(value: str) -> str:
    if _BASE_URL.fullmatch(value):
        return value.rstrip("/")
    raise ValueError("write the URL before /api/v1, such as https://rekor.sigstore.dev")


def _console_url(value: str) -> str:
    if _CONSOLE_URL.fullmatch(value):
        return value.rstrip("/").lower()
    raise ValueError("write https:// and a host, and a port if there is one, such as https://console.example.com")


def _command(value: str) -> str:
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise ValueError(f"{error}; write a program and its arguments, quoted as in a shell") from error
    if not words:
        raise ValueError("write a program and its arguments")
    return value


_OBJECT_STORES = ("s3://", "gs://", "abfs://", "abfss://", "hdfs://", "file://")


def _copies(value: tuple[str, ...]) -> tuple[str, ...]:
    for one in value:
        if one.startswith(("postgres://", "postgresql://")):
            check_database_url(one)
        elif not one or ("://" in one and (not one.startswith(_OBJECT_STORES) or urlsplit(one).password is not None)):
            raise ValueError("write paths of files, of folders (ending in /), or URLs: postgresql://…, s3://…, gs://…")
    return value


def _key_source(value: Any) -> Any:
    # In a settings file it is a mapping, {file: PATH}; in a variable, text.
    if isinstance(value, dict) and len(value) == 1:
        ((kind, where),) = value.items()
        value = f"{kind}:{where}"
    if not isinstance(value, str):
        return value
    kind, _, where = value.partition(":")
    if kind not in ("file", "env", "command") or not where.strip():
        raise ValueError("write one of {file: PATH}, {env: NAME}, {command: PROGRAM}, or file:PATH and so on")
    return f"{kind}:{_command(where) if kind == 'command' else where}"


def _database_url(value: SecretStr) -> SecretStr:
    check_database_url(value.get_secret_value())
    return value


type Seconds = Annotated[float, Field(gt=0, le=86_400)]
type Size = Annotated[ByteSize, Field(ge=1024)]
type UserPath = Annotated[Path, AfterValidator(Path.expanduser)]

SECRETS = frozenset({"database_url", "checkpoint_copies", "sinks"})  # values never shown in a message

# What to write instead, for errors where pydantic's message does not say it.
_HINTS = {
    "byte_size": "write a size such as 65536 or 16MiB",
    "byte_size_unit": "write a size such as 65536 or 16MiB",
    "path_type": "write a path",
    "string_type": "write text, in quotes if it looks like a number or a boolean",
    "tuple_type": "write a list, such as [uploads.example.com]",
}


LISTS = ("large_uploads", "mcp_endpoints", "checkpoint_copies")
"""Settings that are lists of texts."""


class Settings(BaseModel):
    """All settings. A test checks that docs/settings.md describes each of them."""

    # Unknown names are errors: a misspelt limit must not leave the default in force unnoticed.
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    listen: Annotated[str, AfterValidator(_listen)] = Field(
        "127.0.0.1:8080", description="Address that the proxy listens on."
    )
    mode: Annotated[str, AfterValidator(_mode)] = Field(
        "regular", description="How traffic reaches the proxy: regular (HTTPS_PROXY), reverse:URL, or transparent."
    )
    profile: Literal["watch", "balanced", "strict"] | None = Field(
        None, description="Shipped policy: watch, balanced (the default) or strict; given with policy, both count."
    )
    policy: UserPath = Field(
        default_factory=lambda: profile_file(DEFAULT_PROFILE),
        description="Your policy file, or a folder of policy files; default: the profile alone.",
    )
    policy_source: Literal["file", "pushed"] = Field(
        "file", description="Which policy counts: that of the files, or the one that `interlock policy push` signed."
    )
    policy_keys: UserPath | None = Field(
        None,
        description="Public keys whose pushed policies count: a PEM file or a folder; default: keys/policy-public.",
    )
    canary_window: Seconds = Field(300, description="Seconds over which a canary is compared with the stable version.")
    canary_calls: int = Field(50, ge=1, description="Calls that each of the two must have decided before they are.")
    canary_denials: float = Field(
        0.1, gt=0, le=1, description="How far the share of denials may be above the stable version's: 0.1 is 10 points."
    )
    canary_errors: float = Field(0.1, gt=0, le=1, description="The same for the share of calls that end in an error.")
    state_dir: UserPath = Field(
        default_factory=lambda: Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state") / "interlock",
        description="Folder for the CA, keys, tokens and the audit log.",
    )
    database_url: Annotated[SecretStr, AfterValidator(_database_url)] | None = Field(
        None, description="URL of a Postgres that several proxies share; default: a file in the state folder."
    )
    database_connections: int = Field(
        8,
        ge=1,
        le=100,
        description="Most connections to Postgres for calls, and as many for shipping, of each worker.",
    )
    key_encryption_key: Annotated[str, BeforeValidator(_key_source)] | None = Field(
        None, description="Where the key is that a fleet's keys are sealed with: file:PATH, env:NAME, command:PROGRAM."
    )
    upstream_ca: UserPath | None = Field(
        None, description="PEM file with more CA certificates to trust for upstream servers."
    )
    default_agent: str = Field("agent", min_length=1, max_length=64, description="Name for a caller without a token.")
    agent_auth: Literal["optional", "required"] = Field(
        "optional", description="Whether callers need an agent's token."
    )
    identity: UserPath | None = Field(
        None, description="File that names who vouches for agents beside their own tokens: OIDC, Kubernetes, SPIFFE."
    )
    external: UserPath | None = Field(
        None, description="File that names the services, such as OPA, that external rules ask."
    )
    operator_listen: Annotated[str, AfterValidator(_listen)] | None = Field(
        None, description="TCP address of the admin API, in addition to its unix socket."
    )
    workers: int = Field(
        default_factory=lambda: min(4, _processors()),
        ge=1,
        le=MAX_WORKERS,
        description="Number of worker processes.",
    )
    health_listen: Annotated[str, AfterValidator(lambda text: text if text == "off" else _listen(text))] = Field(
        "127.0.0.1:8081", description="Address of /healthz, /readyz and /metrics, or off."
    )
    server_metrics: bool = Field(
        default=False, description="Whether /metrics has the latency of each server, and so servers' names."
    )
    console_listen: Annotated[str, AfterValidator(lambda text: text if text == "off" else _listen(text))] = Field(
        "127.0.0.1:8090", description="Address of the web console, or off."
    )
    console_url: Annotated[str, AfterValidator(_console_url)] | None = Field(
        None, description="URL of the console for operators, where a TLS server in front of it has another."
    )
    console_link: Literal["auto", "always", "never"] = Field(
        "auto", description="Whether the start prints a one-time link to the console; auto: on a terminal."
    )
    console_oidc: UserPath | None = Field(None, description="File that says how operators sign in by OpenID Connect.")
    hold_timeout: Seconds = Field(
        50, description="Seconds that a call waits for people to approve it, where its rule says how: hold."
    )
    hold_timeout_progress: Seconds = Field(
        600, description="The same for a call whose client asked for progress, and can be sent it meanwhile."
    )
    hold_keepalive: Seconds = Field(
        5, ge=0.1, description="Seconds between two signs of life to the client of a call that waits for people."
    )
    ready_lag: Seconds = Field(300, description="Seconds that an event may wait for the store before /readyz fails.")
    header_limit: Size = Field(ByteSize(64 << 10), description="Largest request head; above it, 431.")
    header_timeout: Seconds = Field(30, description="Seconds for a request head to arrive; after that, 408.")
    body_limit: Size = Field(ByteSize(16 << 20), description="Largest request body; above it, 413.")
    body_timeout: Seconds = Field(300, description="Seconds for a request body to arrive; after that, 408.")
    large_uploads: tuple[str, ...] = Field(
        ("*",), description="Hosts (globs) that may receive uploads above body_limit; they are scanned as a stream."
    )
    mcp_endpoints: tuple[str, ...] = Field(
        (), description="Endpoints (globs of host/path) that get nothing but MCP messages; others are learned."
    )
    response_limit: Size = Field(ByteSize(64 << 20), description="Largest MCP response that is not a stream.")
    event_limit: Size = Field(ByteSize(16 << 20), description="Largest server-sent event or WebSocket message.")
    connection_limit: int = Field(2048, ge=1, description="Most client connections at a time; above it, 503.")
    stream_limit: int = Field(512, ge=1, description="Most event streams per agent; above it, 503.")
    idle_timeout: Seconds = Field(600, ge=1, description="Seconds after which an idle connection is closed.")
    drain_timeout: Seconds = Field(10, description="Seconds that calls in flight get to finish when the proxy stops.")
    audit_log_limit: Size = Field(ByteSize(1 << 30), description="Largest local log; above it, calls are refused.")
    on_audit_failure: Literal["refuse", "allow"] = Field(
        "refuse", description="Whether calls that cannot be recorded are refused or allowed."
    )
    retention_days: float = Field(90, gt=0, le=36_500, description="Days that the embedded store keeps events.")
    checkpoint_file: UserPath | None = Field(None, description="File that signed checkpoints are appended to.")
    checkpoint_command: Annotated[str, AfterValidator(_command)] | None = Field(
        None, description="Command that gets each signed checkpoint on stdin, to store it elsewhere."
    )
    checkpoint_copies: Annotated[tuple[str, ...], AfterValidator(_copies)] = Field(
        (), description="Second places for signed checkpoints: files, folders (ending in /), object stores, Postgres."
    )
    checkpoint_seconds: Seconds = Field(30, description="Seconds between signed checkpoints while events arrive.")
    transparency_log: Annotated[str, AfterValidator(_log_url)] | None = Field(
        None, description="URL of a transparency log that speaks Rekor's API, which checkpoints are posted to."
    )
    transparency_key: UserPath | None = Field(None, description="PEM file with that log's public key.")
    transparency_seconds: Seconds = Field(600, description="Seconds between two posted checkpoints of one writer.")
    sinks: Annotated[tuple[AnySink, ...], BeforeValidator(parse_sinks), AfterValidator(distinct)] = Field(
        (), description="Where the trail goes beside the store: a list, each with its kind (docs/sinks.md)."
    )
    trace: Literal["off", "auto", "require"] = Field(
        "auto", description="Whether `interlock run` traces servers with strace: off, auto (if it works), or require."
    )
    commit_keys: UserPath | None = Field(None, description="File of the keys that sign commit tokens.")
    sampler_url: Annotated[str, AfterValidator(_base_url)] | None = Field(
        None, description="OpenAI-compatible endpoint for candidate outputs, used if the agent sends none."
    )
    sampler_model: str | None = Field(None, min_length=1, description="Model for candidate outputs.")
    sampler_key_file: UserPath | None = Field(None, description="File with the endpoint's API key.")
    sampler_timeout: Seconds = Field(10, description="Seconds that both candidate outputs may take.")
    notify: UserPath | None = Field(None, description="File that names whom to tell when something waits for approval.")
    rule_proposals: bool = Field(
        default=False, description="Whether agents may propose policy rules, at http://interlock.internal/mcp."
    )
    fast: bool = Field(
        True, description="Off: mitmproxy's own code for all that is replaced for speed alone; for finding faults."
    )
    fast_lane: bool = Field(
        True, description="Off: every call passes mitmproxy's layers, plain ones too; for finding faults."
    )
    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="Log format: json, console, or auto (console if stderr is a terminal)."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level to log.")

    @model_validator(mode="before")
    @classmethod
    def _own_policy_replaces_the_default(cls, values: Any) -> Any:
        # Whoever wrote a policy before there were profiles has all of it there: another one joins only where asked.
        if not isinstance(values, dict) or values.get("policy") is not None:
            return values
        profile = values.get("profile") or DEFAULT_PROFILE
        known = profile if profile in PROFILES else DEFAULT_PROFILE  # a wrong one is told when its field is checked
        return {**values, "profile": profile, "policy": profile_file(known)}

    @property
    def profile_files(self) -> tuple[Path, ...]:
        """The profile's file, where it counts beside a policy of one's own."""
        own = None if self.profile is None else profile_file(self.profile)
        return () if own is None or own == self.policy else (own,)

    @property
    def commit_keys_file(self) -> Path:
        return self.commit_keys or self.state_dir / "keys" / "commit-keys.json"

    @property
    def listen_address(self) -> tuple[str, int]:
        return split_address(self.listen)

    @property
    def operator_address(self) -> tuple[str, int] | None:
        return split_address(self.operator_listen) if self.operator_listen else None

    @property
    def health_address(self) -> tuple[str, int] | None:
        return None if self.health_listen == "off" else split_address(self.health_listen)

    @property
    def console_address(self) -> tuple[str, int] | None:
        return None if self.console_listen == "off" else split_address(self.console_listen)

    @property
    def console_is_secure(self) -> bool:
        """Whether operators reach the console by TLS."""
        return self.console_url is not None and self.console_url.startswith("https:")

    @property
    def postgres(self) -> str | None:
        """The database's URL with its password; None without a database."""
        return self.database_url.get_secret_value() if self.database_url else None

    @field_serializer("checkpoint_copies", when_used="json")
    def _show_checkpoint_copies(self, value: tuple[str, ...]) -> list[str]:
        return [shown(one) if one.startswith(("postgres://", "postgresql://")) else one for one in value]

    @field_serializer("database_url", when_used="json")
    def _show_database_url(self, value: SecretStr | None) -> str | None:
        return shown(value.get_secret_value()) if value else None


def split_address(listen: str) -> tuple[str, int]:
    """Return host and port. Raises ValueError."""
    match = _LISTEN.fullmatch(listen)
    if match is None or int(match["port"]) > 65535:
        raise ValueError("write HOST:PORT, for example 127.0.0.1:8080")
    return match["host"].strip("[]"), int(match["port"])


@dataclass(frozen=True)
class LoadedSettings:
    settings: Settings
    sources: Mapping[str, str]


def load_settings(
    flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None, config_file: Path | None = None
) -> LoadedSettings:
    """Return the settings. Raises ConfigError that names the setting, its value, its source and what to write."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    sources = dict.fromkeys(Settings.model_fields, "default")
    path, from_file = _read_file(config_file, environ)
    for source, layer in (
        (f"file {path}", from_file),
        ("environment", _read_environment(environ)),
        ("flag", {k: v for k, v in (flags or {}).items() if v is not None}),
    ):
        for name, value in layer.items():
            values[name] = value
            sources[name] = f"{ENV_PREFIX}{name.upper()}" if source == "environment" else source
            if source == "environment" and name == "database_url" and environ.get(DATABASE_URL_FILE):
                sources[name] = DATABASE_URL_FILE
    try:
        return LoadedSettings(Settings(**values), sources)
    except ValidationError as error:
        raise ConfigError(_describe(error, values, sources)) from error


def _describe(error: ValidationError, values: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    lines = []
    for problem in error.errors():
        name = str(problem["loc"][0])
        where = _place_in_sinks(problem["loc"]) if name == "sinks" else ""
        message = "; ".join(
            part for part in (problem["msg"].removeprefix("Value error, "), _HINTS.get(problem["type"])) if part
        )
        # A rejected URL may still contain a password.
        value = HIDDEN if name in SECRETS else repr(values.get(name))
        lines.append(f"setting {name}{where} = {value} (from {sources.get(name, '?')}): {message}")
    return "\n".join(lines)


def _place_in_sinks(place: tuple[int | str, ...]) -> str:
    """Return which sink and which of its settings is meant: sinks, its number, its kind, and the setting."""
    inside = [*place[1:2], *place[3:]]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in inside)


def config_path(named: Path | None, environ: Mapping[str, str]) -> Path:
    """Return the path of the settings file, whether it exists or not."""
    return named or Path(environ.get(CONFIG_ENV) or CONFIG_FILE)


def _read_file(path: Path | None, environ: Mapping[str, str]) -> tuple[Path, dict[str, Any]]:
    named = path is not None or bool(environ.get(CONFIG_ENV))
    path = config_path(path, environ)
    if not path.exists():
        if named:
            raise ConfigError(
                f"config file {str(path)!r} does not exist; create it, or unset --config and {CONFIG_ENV}"
            )
        return path, {}
    from ruamel.yaml import YAML  # noqa: PLC0415  slow to import, and most starts have no settings file
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415

    try:
        # ruamel refuses a key that occurs twice, where PyYAML would silently take the last one.
        content = YAML(typ="safe", pure=True).load(path.read_text())
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise ConfigError(f"config file {str(path)!r} cannot be read: {error}") from error
    if content is None:
        return path, {}
    if not isinstance(content, dict):
        raise ConfigError(f"config file {str(path)!r} must be a mapping of settings, not {type(content).__name__}")
    for name in content:
        _known(str(name), f"file {path}")
    return path, content


def _read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable, text in environ.items():
        if not variable.startswith(ENV_PREFIX) or variable in {
            CONFIG_ENV,
            DATABASE_URL_FILE,
            AGENT_TOKEN_FILE,
            *SECRET_VARIABLES,
        }:
            continue
        name = _known(variable.removeprefix(ENV_PREFIX).lower(), f"environment variable {variable}")
        if name in LISTS:
            values[name] = [part for part in re.split(r"[,\s]+", text) if part]
        elif text:  # compose files set unused variables to the empty string
            values[name] = text
    if file := environ.get(DATABASE_URL_FILE):
        if "database_url" in values:
            raise ConfigError(f"INTERLOCK_DATABASE_URL and {DATABASE_URL_FILE} are both set; unset one of them")
        values["database_url"] = _read_secret(Path(file))
    return values


def _read_secret(file: Path) -> str:
    # An empty file is an error: treated as unset, the proxy would silently use a store of its own instead of Postgres.
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"cannot read {str(file)!r} (from {DATABASE_URL_FILE}): {why}") from error
    if not text:
        raise ConfigError(f"{str(file)!r} (from {DATABASE_URL_FILE}) is empty; write the database's URL into it")
    return text


def _known(name: str, source: str) -> str:
    if name in Settings.model_fields:
        return name
    variable = f"{ENV_PREFIX}{name.upper()}"
    if variable in SECRET_VARIABLES:
        raise ConfigError(f"{name} (from {source}) is a secret, not a setting; set the environment variable {variable}")
    close = difflib.get_close_matches(name, Settings.model_fields, n=1)
    hint = f"did you mean {close[0]}?" if close else "`interlock config show` lists the settings"
    raise ConfigError(f"there is no setting {name!r} (from {source}); {hint}")
