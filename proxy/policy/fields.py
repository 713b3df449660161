"""What the fields of a policy file are made of. Pure, no I/O."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictStr

from proxy.policy.regex import compile_search


def _check_regex(pattern: str) -> str:
    try:
        compile_search(pattern)
    except ValueError as error:
        raise ValueError(f"{error}; RE2 has no look-around and no back-references") from None
    return pattern


type NonEmptyStr = Annotated[StrictStr, Field(min_length=1)]
type Regex = Annotated[StrictStr, Field(min_length=1), AfterValidator(_check_regex)]


class Strict(BaseModel):
    """Takes what it knows and nothing else, and never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False)
