"""A credential's value does not show itself."""

from __future__ import annotations

import copy
import pickle
import traceback

import pytest

from proxy.core.vault import CredentialUnavailableError, Secret

VALUE = b"real-value-4711"


@pytest.mark.parametrize("show", [str, repr, "{}".format, "{!r}".format, lambda secret: f"{[secret]}"])
def test_a_secret_does_not_show_itself(show: object) -> None:
    assert VALUE.decode() not in show(Secret(VALUE))  # type: ignore[operator]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_secret_is_not_pickled_or_copied(protocol: int) -> None:
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(Secret(VALUE), protocol)
    with pytest.raises(TypeError, match="not pickled"):
        copy.copy(Secret(VALUE))


def test_a_traceback_with_locals_does_not_show_a_secret() -> None:
    secret = Secret(VALUE)
    try:
        raise ValueError(f"{secret}")
    except ValueError as error:
        told = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert "secret = Secret(…)" in told
    assert VALUE.decode() not in "".join(line for line in told.splitlines() if "VALUE" not in line)


def test_a_credential_that_is_not_available_is_named_with_the_reason() -> None:
    assert str(CredentialUnavailableError("github", "no file /run/token")) == (
        "credential 'github' is not available: no file /run/token"
    )
