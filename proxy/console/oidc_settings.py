"""The settings of OpenID Connect: a YAML file, with the client's secret in a file of its own.

issuer: https://id.example.com
client_id: interlock
client_secret_file: /run/secrets/oidc
operator: email
roles: {claim: groups, admin: [sre-leads], approver: [sre], viewer: [staff]}
"""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  pydantic reads annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from proxy.core.approvals import Role
from proxy.errors import ConfigError
from proxy.identity.issuer_http import check_issuer
from proxy.system.secret_files import read_private

if TYPE_CHECKING:
    from collections.abc import Mapping


class RoleMap(BaseModel):
    """Which values of a claim make which role."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    claim: str = Field(min_length=1)
    admin: tuple[str, ...] = ()
    approver: tuple[str, ...] = ()
    viewer: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not (self.admin or self.approver or self.viewer):
            raise ValueError("name the values of the claim for admin, approver or viewer")
        return self

    def role(self, claims: Mapping[str, Any]) -> Role | None:
        """Return the highest role that the claims give; None where they give none."""
        value = claims.get(self.claim)
        held = {value} if isinstance(value, str) else set()
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            held = set(value)
        for role in (Role.ADMIN, Role.APPROVER, Role.VIEWER):
            if held & set(getattr(self, role.value)):
                return role
        return None


class OidcSettings(BaseModel):
    """Who signs operators in, and what its claims mean here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: Annotated[str, AfterValidator(check_issuer)]
    client_id: str = Field(min_length=1, max_length=256)
    client_secret_file: Path | None = None
    operator: str = Field("sub", min_length=1)
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    roles: RoleMap
    ca_file: Path | None = None

    def secret(self) -> str | None:
        """Return the client's secret; None for a public client. Raises ConfigError where it cannot be used."""
        if self.client_secret_file is None:
            return None
        try:
            text = read_private(self.client_secret_file).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read client_secret_file {str(self.client_secret_file)!r}") from error
        if not text:
            raise ConfigError(f"client_secret_file {str(self.client_secret_file)!r} is empty")
        return text


def load_oidc(path: Path | None, console_url: str | None) -> OidcSettings | None:
    """Return what a file says; None without a file. Raises ConfigError that says what to write."""
    if path is None:
        return None
    if console_url is None:
        raise ConfigError("setting console_oidc needs console_url: the issuer sends browsers back there")
    try:
        content = YAML(typ="safe", pure=True).load(path.read_text())
        made = OidcSettings.model_validate(content)
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise ConfigError(f"OIDC file {str(path)!r} cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise ConfigError(f"OIDC file {str(path)!r}, {field}: {first['msg'].removeprefix('Value error, ')}") from None
    made.secret()
    return made
