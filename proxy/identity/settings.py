"""The settings of agents' identity: a YAML file that names who vouches for agents, beside the proxy's own tokens.

providers:
  - {name: okta, type: oidc, issuer: https://id.example.com, audience: interlock, claims: [groups]}
  - {name: cluster, type: kubernetes, issuer: https://kubernetes.default.svc, audience: interlock}
  - {name: mesh, type: spiffe, trust_domain: example.org, bundle: /run/spire/bundle.pem, audience: interlock}
"""

from __future__ import annotations

import re
from pathlib import Path  # noqa: TC003  pydantic reads annotations when it runs
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from proxy.errors import ConfigError
from proxy.identity.issuer_http import check_issuer, check_url
from proxy.identity.jwt import ALGORITHMS, SKEW_SECONDS

NAME: Final = r"^[A-Za-z][A-Za-z0-9._-]{0,31}$"
TRUST_DOMAIN: Final = re.compile(r"[a-z0-9._-]{1,255}")
_KUBERNETES_API: Final = "https://kubernetes.default.svc"


def _algorithm(value: str) -> str:
    if value not in ALGORITHMS:
        raise ValueError(f"{value!r} is not accepted; write some of {', '.join(ALGORITHMS)}")
    return value


def _trust_domain(value: str) -> str:
    bare = value.removeprefix("spiffe://")
    if not TRUST_DOMAIN.fullmatch(bare):
        raise ValueError("write a trust domain such as example.org")
    return bare


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


type Texts = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=512)], ...], BeforeValidator(_as_list), Field(min_length=1)
]
type Url = Annotated[str, AfterValidator(check_url)]
type Seconds = Annotated[float, Field(gt=0, le=604_800)]


class _Provider(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=NAME)
    claims: tuple[Annotated[str, Field(min_length=1, max_length=128)], ...] = Field((), max_length=16)
    skew_seconds: float = Field(SKEW_SECONDS, ge=0, le=300)


class _Tokens(_Provider):
    """What providers of signed tokens have in common."""

    issuer: Annotated[str, AfterValidator(check_issuer)]
    audience: Texts
    algorithms: tuple[Annotated[str, AfterValidator(_algorithm)], ...] = Field(("RS256", "ES256"), min_length=1)
    jwks_url: Url | None = None
    jwks_file: Path | None = None
    ca_file: Path | None = None
    refresh_seconds: Seconds = 300
    keys_seconds: Seconds = 86_400

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.jwks_url is not None and self.jwks_file is not None:
            raise ValueError("jwks_url and jwks_file are two places of the same keys; write one of them")
        if self.keys_seconds < self.refresh_seconds:
            raise ValueError("keys_seconds, for how long keys count, is shorter than refresh_seconds")
        return self


class OidcProvider(_Tokens):
    """An issuer of OpenID Connect or OAuth tokens."""

    type: Literal["oidc"]
    agent: Texts = ("sub",)
    """The claim that names the agent; of several, the name has all values with / between them."""
    types: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = ()
    """The `typ` that tokens must have, such as at+jwt."""


class KubernetesProvider(_Tokens):
    """A cluster: tokens of service accounts, as pods get them projected."""

    type: Literal["kubernetes"]
    token_file: Path | None = None
    """The proxy's own token, with which it asks the API server."""
    token_review: bool = False
    api: Url = _KUBERNETES_API
    review_seconds: Seconds = 60


class SpiffeProvider(_Provider):
    """A trust domain of SPIFFE: X.509-SVIDs by TLS to the proxy, and JWT-SVIDs where an audience is given."""

    type: Literal["spiffe"]
    trust_domain: Annotated[str, AfterValidator(_trust_domain)]
    bundle: Path
    audience: Texts | None = None
    algorithms: tuple[Annotated[str, AfterValidator(_algorithm)], ...] = Field(("RS256", "ES256"), min_length=1)


type Provider = Annotated[OidcProvider | KubernetesProvider | SpiffeProvider, Field(discriminator="type")]
type TokenProvider = OidcProvider | KubernetesProvider


class IdentitySettings(BaseModel):
    """Who vouches for agents."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    providers: tuple[Provider, ...] = Field(min_length=1, max_length=16)
    wait_seconds: float = Field(3.0, gt=0, le=30)
    """How long a call waits for keys that have to be fetched first."""

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        names = [one.name for one in self.providers]
        domains = [one.trust_domain for one in self.providers if isinstance(one, SpiffeProvider)]
        for values, what in ((names, "name"), (domains, "trust_domain")):
            if twice := next((value for value in values if values.count(value) > 1), None):
                raise ValueError(f"two providers have the {what} {twice!r}")
        return self


def load_identity(path: Path | None, default_agent: str) -> IdentitySettings | None:
    """Return what a file says; None without a file. Raises ConfigError that says what to write."""
    if path is None:
        return None
    try:
        content = YAML(typ="safe", pure=True).load(path.read_text())
        made = IdentitySettings.model_validate(content)
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise ConfigError(f"identity file {str(path)!r} cannot be read: {error}") from error
    except ValidationError as error:
        raise ConfigError(f"identity file {str(path)!r}, {describe(error)}") from None
    for provider in made.providers:
        # A caller that proves nothing must not have a name that looks proven.
        if default_agent.startswith((f"{provider.name}:", "spiffe://")):
            raise ConfigError(f"setting default_agent = {default_agent!r} looks like an agent of {provider.name!r}")
    return made


def describe(error: ValidationError) -> str:
    """Say which field of a file is wrong, and what to write."""
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"])) or "the file"
    return f"{field}: {first['msg'].removeprefix('Value error, ')}"
