"""Values that do not change, without what it costs to make Python insist on it. Pure: standard library only.

A frozen dataclass is made by one call of `object.__setattr__` for each field, so an event of thirty fields takes
five times as long to make as a plain one. Here the type checker, which reads all of the product, does the insisting.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen[T](*, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """Make a class a dataclass whose fields nobody sets again; equal values are equal, and hash alike."""
    return dataclass(slots=True, unsafe_hash=True, kw_only=kw_only)
