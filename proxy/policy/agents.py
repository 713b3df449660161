"""Which agents a rule is about: by their names, or by claims that somebody vouches for. Pure, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Field, Tag, model_validator

from proxy.core.identity import Identity
from proxy.policy.conditions import Glob, NonEmptyList, NonEmptyStr, OneOrMore, Strict, as_tuple
from proxy.policy.globs import compile_globs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

type Fits = Callable[[str, Identity | None], bool]


class ClaimMatch(Strict):
    """Agents by a claim of their token or certificate. An agent without a proven identity has no claims."""

    claim: NonEmptyStr = Field(
        description="The claim: one at the top, such as groups, sub or iss; act.sub, who acts for the subject; or one "
        "inside by its JSON pointer, such as /kubernetes.io/namespace."
    )
    in_: NonEmptyList[Glob] | None = Field(
        default=None, alias="in", description="Globs over the claim's values; one of the values must fit."
    )
    not_in: NonEmptyList[Glob] | None = Field(
        default=None, description="Globs that none of the values may fit; an agent without the claim matches, too."
    )
    provider: OneOrMore[NonEmptyStr] | None = Field(
        default=None, description="Who must vouch for the claim, by the provider's name; any if absent."
    )

    @model_validator(mode="after")
    def _one_test(self) -> ClaimMatch:
        if (self.in_ is None) == (self.not_in is None):
            raise ValueError("write in: or not_in:, one of them")
        return self

    def fits(self) -> Fits:
        """Return the test whether an agent has the claim."""
        test, wanted = compile_globs(self.in_ or self.not_in), self.in_ is not None
        providers = None if self.provider is None else frozenset(as_tuple(self.provider))

        def fits(_agent: str, identity: Identity | None) -> bool:
            if identity is None or (providers is not None and identity.provider not in providers):
                return not wanted
            return any(map(test, identity.values(self.claim))) is wanted

        return fits


def _kind(value: Any) -> str:
    return "claim" if isinstance(value, dict | ClaimMatch) else "name"


def _shape(value: Any) -> str:
    return "claim" if isinstance(value, dict | ClaimMatch) else "list"


type Agent = Annotated[Annotated[Glob, Tag("name")] | Annotated[ClaimMatch, Tag("claim")], Discriminator(_kind)]
type Agents = Annotated[
    Annotated[ClaimMatch, Tag("claim")] | Annotated[NonEmptyList[Agent], Tag("list")], Discriminator(_shape)
]


def entries(agents: ClaimMatch | Sequence[str | ClaimMatch] | None) -> tuple[str | ClaimMatch, ...]:
    """Return what `agents:` lists; nothing where it is absent."""
    if agents is None:
        return ()
    return (agents,) if isinstance(agents, ClaimMatch) else tuple(agents)


def names(agents: ClaimMatch | Sequence[str | ClaimMatch] | None) -> list[str]:
    """Return the globs over names among them."""
    return [one for one in entries(agents) if isinstance(one, str)]


def compile_agents(agents: ClaimMatch | Sequence[str | ClaimMatch] | None) -> Fits:
    """Return the test whether an agent is meant; every agent is where there is no list."""
    if agents is None:
        return lambda _agent, _identity: True
    globs = names(agents)
    by_name = compile_globs(globs) if globs else lambda _agent: False
    claims = [one.fits() for one in entries(agents) if isinstance(one, ClaimMatch)]
    if not claims:
        return lambda agent, _identity: by_name(agent)
    return lambda agent, identity: by_name(agent) or any(fits(agent, identity) for fits in claims)


def describe(agents: ClaimMatch | Sequence[str | ClaimMatch] | None, identity: Identity | None) -> str:
    """Say why no entry of `agents:` fits an agent."""
    claims = [one.claim for one in entries(agents) if isinstance(one, ClaimMatch)]
    if not claims:
        return "no glob fits"
    if identity is None:
        return f"nobody vouches for the agent, so it has no claim {claims[0]!r}"
    has = {claim: sorted(identity.values(claim)) for claim in claims}
    return "; ".join(f"its claim {claim!r} is {values or 'absent'}" for claim, values in has.items())
