"""Default values of pydantic's fields. Pure.

pydantic reads the signature of a factory. To read that of `list` or `dict`, Python copies the table of all modules,
and leaves 50 KB that only a garbage collection frees: 2 MB for a policy's models.
"""

from __future__ import annotations


def empty_list[T]() -> list[T]:
    return []


def empty_dict[K, V]() -> dict[K, V]:
    return {}
