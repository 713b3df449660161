"""The targets of notices, as the settings name them. Their secrets come from files or the environment. Pure but for that.

    notify:
      ops-chat: {kind: slack, url_file: /run/secrets/slack-url}
      pager: {kind: webhook, url: https://pager.example.com/hook, secret_file: /run/secrets/hook}
      mail: {kind: email, smtp: smtp.example.com:587, sender: interlock@example.com, to: [ops@example.com]}
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  pydantic reads annotations when it runs
from typing import TYPE_CHECKING, Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from proxy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_TARGETS = 16
SECRET_ENV = "INTERLOCK_NOTIFY_"  # noqa: S105  the beginning of a variable's name
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
    given = environ.get(f"{SECRET_ENV}{name.upper().replace('-', '_')}_SECRET")
    secret = _read(name, target.secret_file) if target.secret_file else given
    return Secrets(url, secret.encode() if secret else None)


def _read(name: str, file: Path) -> str:
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"notify target {name}: cannot read {str(file)!r}: {why}") from error
    if not text:
        raise ConfigError(f"notify target {name}: {str(file)!r} is empty")
    return text
