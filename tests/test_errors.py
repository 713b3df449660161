"""The tree of exceptions that the module draws is the tree there is."""

from __future__ import annotations

import inspect
import re

import pytest

from proxy import errors
from proxy.errors import InterlockError, PhaseError, ReasonError, StartError, WireError

CLASSES = {name: made for name, made in vars(errors).items() if inspect.isclass(made)}


def drawn() -> dict[str, str]:
    """Return each class in the docstring's picture with the one it hangs from."""
    parents, path = {}, ["InterlockError"]
    for line in (errors.__doc__ or "").splitlines():
        if (found := re.match(r"([│ ]*)[├└]── (\w+)", line)) is not None:
            depth = len(found[1]) // 4 + 1
            path[depth:] = [found[2]]
            parents[found[2]] = path[depth - 1]
    return parents


def test_the_picture_shows_every_class_under_its_base() -> None:
    real = {name: made.__base__.__name__ for name, made in CLASSES.items() if made is not InterlockError}
    assert drawn() == real


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_is_caught_by_the_boundary_that_prints_messages(name: str) -> None:
    assert issubclass(CLASSES[name], InterlockError)


@pytest.mark.parametrize("kind", [WireError, PhaseError])
def test_a_refusal_has_its_code_apart_and_in_its_message(kind: type[ReasonError]) -> None:
    error = kind("bad_json", "line 1")
    assert (error.reason, error.detail, str(error)) == ("bad_json", "line 1", "bad_json: line 1")


def test_malformed_bytes_and_a_refused_commit_are_not_caught_together() -> None:
    assert not issubclass(WireError, PhaseError)
    assert not issubclass(PhaseError, WireError)


def test_a_program_that_cannot_be_started_has_the_exit_code_of_shells() -> None:
    assert StartError("no such program", 127).code == 127
