"""The targets of notices: a YAML file by name, with secrets in files or in the environment.

ops-chat: {kind: slack, url_file: /run/secrets/slack-url}
pager: {kind: webhook, url: https://pager.example.com/hook, secret_file: /run/secrets/hook}
mail: {kind: email, smtp: smtp.example.com:587, sender: interlock@example.com, to: [ops@example.com]}
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  pydantic reads annotations when it runs
from typing import TYPE_CHECKING, Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from proxy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_TARGETS = 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
type Kind = Literal["webhook", "slack", "teams", "ntfy", "email"]


def _check_url(value: str) -> str:
    parts = urlsplit(value)
    loopback = parts.hostname in ("127.0.0.1", "::1", "localhost")
    if not parts.hostname or parts.username or (parts.scheme != "https" and not (parts.scheme == "http" and loopback)):
        raise ValueError("write an https:// URL without a user name; http:// is for this machine alone")
    return value


class Target(BaseModel):
    """Whom to tell, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind = Field(description="webhook, slack, teams, ntfy or email.")
    url: Annotated[str, AfterValidator(_check_url)] | None = Field(None, description="Where to send it, by HTTPS.")
    url_file: Path | None = Field(None, description="File with the URL, where the URL itself is a secret.")
    secret_file: Path | None = Field(None, description="File with the secret that signs webhooks, or ntfy's token.")
    secret_env: str | None = Field(None, min_length=1, description="Environment variable with that secret.")
    topic: str | None = Field(None, min_length=1, description="Of ntfy: the topic.")
    smtp: str | None = Field(None, pattern=r"^[^:\s]+:\d{1,5}$", description="Of email: the mail server, HOST:PORT.")
    tls: Literal["starttls", "tls", "off"] = Field("starttls", description="Of email; off is for this machine alone.")
    user: str | None = Field(None, description="Of email: the user name; its password is in secret_file.")
    sender: str = Field("interlock@localhost", description="Of email: the address it comes from.")
    to: tuple[str, ...] = Field((), description="Of email: the addresses it goes to.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.kind == "email":
            if not self.smtp or not self.to:
                raise ValueError("an email target needs smtp: HOST:PORT and to: [address]")
            if self.tls == "off" and self.smtp.rpartition(":")[0] not in ("127.0.0.1", "localhost"):
                raise ValueError("tls: off is for a mail server on this machine")
        elif (self.url is None) == (self.url_file is None):
            raise ValueError("write one of url: and url_file:")
        if self.kind == "ntfy" and not self.topic:
            raise ValueError("an ntfy target needs topic:")
        return self


def load_targets(path: Path | None) -> dict[str, Target]:
    """Return the targets in a file, by name; none without a file. Raises ConfigError that says what to write."""
    if path is None:
        return {}
    try:
        content = YAML(typ="safe", pure=True).load(path.read_text())
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise ConfigError(f"notify file {str(path)!r} cannot be read: {error}") from error
    if not isinstance(content, dict) or not 1 <= len(content) <= MAX_TARGETS:
        raise ConfigError(
            f"notify file {str(path)!r} must name 1 to {MAX_TARGETS} targets, such as ops: {{kind: slack, …}}"
        )
    return {str(name): _target(path, str(name), raw) for name, raw in content.items()}


def _target(path: Path, name: str, raw: object) -> Target:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"notify file {str(path)!r}: the name {name[:64]!r} is not 1 to 64 letters, digits, - and _")
    try:
        return Target.model_validate(raw)
    except ValidationError as error:
        # Without the input: a URL that is wrong in one letter is a secret all the same.
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        why = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"notify file {str(path)!r}, target {name}{', ' + field if field else ''}: {why}") from None


@dataclass(frozen=True, slots=True)
class Secrets:
    """What of a target nobody may see: never logged, never in a message."""

    url: str | None
    secret: bytes | None

    def __repr__(self) -> str:
        return "Secrets(…)"


def read_secrets(name: str, target: Target, environ: Mapping[str, str]) -> Secrets:
    """Read a target's secrets anew, so that a rotated file counts at once. Raises ConfigError."""
    url = _read(name, target.url_file) if target.url_file else target.url
    if url is not None:
        try:
            _check_url(url)
        except ValueError as error:
            raise ConfigError(f"notify target {name}: {error}") from error
    return Secrets(url, _secret(name, target, environ))


def _secret(name: str, target: Target, environ: Mapping[str, str]) -> bytes | None:
    if target.secret_file is not None:
        return _read(name, target.secret_file).encode()
    if target.secret_env is None:
        return None
    # A secret that is named and not there is an error: unsigned, the notice would look like anybody's.
    if not (value := environ.get(target.secret_env)):
        raise ConfigError(f"notify target {name}: the environment variable {target.secret_env} is not set")
    return value.encode()


def _read(name: str, file: Path) -> str:
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"notify target {name}: cannot read {str(file)!r}: {why}") from error
    if not text:
        raise ConfigError(f"notify target {name}: {str(file)!r} is empty")
    return text
