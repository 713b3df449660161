"""The settings of services that policy asks: a YAML file.

services:
  - {name: opa, type: opa, url: "http://127.0.0.1:8181/v1/data/interlock/allow", timeout_seconds: 0.5}
  - {name: cedar, type: cedar, url: "https://cedar.example.com/v1/is_authorized", token_file: /run/secrets/cedar}
"""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  pydantic reads annotations when it runs
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from proxy.errors import ConfigError
from proxy.identity.issuer_http import check_url


class Service(BaseModel):
    """One service, and how it is asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,63}$")
    type: Literal["opa", "cedar"]
    url: Annotated[str, AfterValidator(check_url)]
    timeout_seconds: float = Field(1.0, gt=0, le=30)
    cache_seconds: float = Field(0.0, ge=0, le=300)
    concurrency: int = Field(32, ge=1, le=1024)
    ca_file: Path | None = None
    token_file: Path | None = None


class ExternalSettings(BaseModel):
    """The services that policy may ask."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    services: tuple[Service, ...] = Field(min_length=1, max_length=16)

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        names = [one.name for one in self.services]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two services have the name {twice!r}")
        return self


def load_external(path: Path | None) -> ExternalSettings | None:
    """Return what a file says; None without a file. Raises ConfigError that says what to write."""
    if path is None:
        return None
    try:
        made = ExternalSettings.model_validate(YAML(typ="safe", pure=True).load(path.read_text()))
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise ConfigError(f"external file {str(path)!r} cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "the file"
        said = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"external file {str(path)!r}, {field}: {said}") from None
    for service in made.services:
        for file in (service.ca_file, service.token_file):
            if file is not None and not file.is_file():
                raise ConfigError(
                    f"external file {str(path)!r}, service {service.name!r}: there is no file {str(file)!r}"
                )
    return made
