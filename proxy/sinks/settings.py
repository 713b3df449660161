"""The settings of sinks. A secret is never among them: they name the file or the variable that holds it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from proxy.errors import ConfigError

_SECRET = re.compile(r"file:.+|env:[A-Za-z_][A-Za-z0-9_]*", re.DOTALL)
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SUBJECT = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def _secret(value: str) -> str:
    if not _SECRET.fullmatch(value):
        raise ValueError("write where the secret is: file:PATH or env:NAME")
    return value


def _plain_url(*schemes: str) -> AfterValidator:
    def check(value: str) -> str:
        try:
            parts = urlsplit(value)
            given = parts.hostname, parts.port
        except ValueError:
            given = None, None
        if not given[0] or parts.scheme not in schemes:
            raise ValueError(f"write {schemes[0]}:// and a host, such as {schemes[0]}://events.example.com")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise ValueError("write the URL without user, password and query; `user` and `password` are settings")
        return value

    return AfterValidator(check)


def _fits(pattern: re.Pattern[str], what: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f"{value!r} is no {what}; write letters, digits and _")
        return value

    return AfterValidator(check)


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


type SecretPlace = Annotated[str, AfterValidator(_secret)]
type UserPath = Annotated[Path, AfterValidator(Path.expanduser)]
type SinkName = Annotated[str, _fits(_NAME, "name of a sink")]
type NatsUrl = Annotated[str, _plain_url("nats", "tls", "ws", "wss")]
type HttpUrl = Annotated[str, _plain_url("https", "http")]


class SinkSettings(BaseModel):
    """What every sink has."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    name: SinkName | None = Field(None, description="What its position belongs to; default: its kind.")
    required: bool = Field(
        False, description="Whether the local log keeps every event until this sink has it, and calls are refused full."
    )
    backlog: int = Field(
        200_000, ge=1000, le=100_000_000, description="Most events that a log keeps for it alone, unless required."
    )

    @property
    def title(self) -> str:
        return self.name or str(getattr(self, "kind", ""))

    @property
    def keeps(self) -> int | None:
        """How many events the log keeps for it alone; None: all."""
        return None if self.required else self.backlog


class NatsSettings(SinkSettings):
    """A stream of NATS JetStream."""

    kind: Literal["nats"]
    url: Annotated[tuple[NatsUrl, ...], BeforeValidator(_as_list), Field(min_length=1)] = Field(
        description="A server of the cluster, or a list of them."
    )
    stream: Annotated[str, _fits(_TOKEN, "name of a stream")] = Field("INTERLOCK", description="The stream.")
    subject: Annotated[str, _fits(_SUBJECT, "subject without wildcards")] = Field(
        "interlock.events", description="The subject that events are published to."
    )
    create: bool = Field(True, description="Whether a stream that is missing is created.")
    replicas: int = Field(1, ge=1, le=5, description="Copies of the stream in the cluster, where it is created.")
    duplicate_window: float = Field(
        3600, ge=1, le=604_800, description="Seconds that the server remembers event ids, where the stream is created."
    )
    user: str | None = Field(None, description="User name.")
    password: SecretPlace | None = Field(None, description="Password: file:PATH or env:NAME.")
    token: SecretPlace | None = Field(None, description="Token: file:PATH or env:NAME.")
    credentials: UserPath | None = Field(None, description="A .creds file with a user's JWT and seed.")
    ca: UserPath | None = Field(None, description="PEM file with the CA of the servers.")
    certificate: UserPath | None = Field(None, description="PEM file with a client certificate and its key.")


class ClickHouseSettings(SinkSettings):
    """A table of ClickHouse."""

    kind: Literal["clickhouse"]
    url: HttpUrl = Field(description="The server's HTTP interface.")
    database: Annotated[str, _fits(_IDENTIFIER, "name of a database")] = Field("default", description="The database.")
    table: Annotated[str, _fits(_IDENTIFIER, "name of a table")] = Field("interlock_events", description="The table.")
    create: bool = Field(True, description="Whether the table and its views are created where they are missing.")
    user: str | None = Field(None, description="User name.")
    password: SecretPlace | None = Field(None, description="Password: file:PATH or env:NAME.")
    ca: UserPath | None = Field(None, description="PEM file with the CA of the server.")


class ParquetSettings(SinkSettings):
    """Files in a folder or an object store."""

    kind: Literal["parquet"]
    path: str = Field(min_length=1, description="A folder, or a URL that pyarrow.fs knows, such as s3://bucket/trail.")
    every: float = Field(60, gt=0, le=86_400, description="Seconds after which a file is written, if it is not full.")


def parse_sinks(value: object) -> object:
    """Return sinks that a flag or a variable gives as JSON. Raises ValueError."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        example = '[{"kind": "nats", "url": "nats://events.example.com"}]'
        raise ValueError(f"it is no JSON ({error}); write a list such as {example}") from error


def distinct(sinks: tuple[SinkSettings, ...]) -> tuple[SinkSettings, ...]:
    """Return the sinks. Raises ValueError where two have one name."""
    titles = [one.title for one in sinks]
    if twice := next((title for title in titles if titles.count(title) > 1), None):
        raise ValueError(f"two sinks have the name {twice!r}; give each its own `name`")
    return sinks


def read_secret(place: str | None, setting: str) -> str | None:
    """Return the secret that is at a place. Raises ConfigError, which names the setting and the place."""
    if place is None:
        return None
    how, _, where = place.partition(":")
    if how == "env":
        if not (found := os.environ.get(where)):
            raise ConfigError(f"{setting}: the environment variable {where} is not set")
        return found
    try:
        text = Path(where).expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"{setting}: cannot read {where!r}: {why}") from error
    if not text:
        raise ConfigError(f"{setting}: {where!r} is empty; write the secret into it")
    return text
