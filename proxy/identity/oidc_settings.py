"""The settings of OpenID Connect: a YAML file, with the client's secret in a file of its own.

issuer: https://id.example.com
client_id: interlock
client_secret_file: /run/secrets/oidc
operator: email
roles: {claim: groups, admin: [sre-leads], approver: [sre], viewer: [staff]}
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  pydantic reads annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from proxy.core.approvals import Role
from proxy.errors import ConfigError
from proxy.identity.issuer_http import check_issuer
from proxy.system.secret_files import read_private

if TYPE_CHECKING:
    from collections.abc import Mapping


_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+|-]{0,127}")
_CLAIM: Final = re.compile(r"\{([^{}]+)\}")
_GLOB: Final = re.compile(r"[*?\[]")


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
    agents: tuple[str, ...] = ()
    """Globs of agents that run on behalf of who signs in; {sub} stands for a claim of that person's."""

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


@dataclass(frozen=True, slots=True)
class Person:
    """Who signed in, the role that the claims give, and the agents that run on this person's behalf."""

    name: str
    role: Role
    runs: frozenset[str] = frozenset()


def person_of(claims: Mapping[str, Any], settings: OidcSettings) -> Person:
    """Return who the claims of a verified token name. Raises ValueError where they name no operator."""
    name, role = claims.get(settings.operator), settings.roles.role(claims)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"the claim {settings.operator!r} names no operator")
    if settings.operator == "email" and claims.get("email_verified") is not True:
        raise ValueError("the issuer has not verified your e-mail address")
    if role is None:
        raise ValueError("your account has no role here")
    return Person(name, role, frozenset(_filled(pattern, claims) for pattern in settings.agents))


def _filled(pattern: str, claims: Mapping[str, Any]) -> str:
    """Return a glob with claims in it, in which a claim's own `*` stands for itself."""

    def value(match: re.Match[str]) -> str:
        found = claims.get(match[1])
        if not isinstance(found, str) or not found:
            raise ValueError(f"your account has no claim {match[1]!r}, which says which agents are yours")
        return _GLOB.sub(r"[\g<0>]", found)

    return _CLAIM.sub(value, pattern)


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
