"""What the console knows of operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.console.operators import Operators
from proxy.core.approvals import Role
from proxy.errors import ConfigError
from proxy.identity.token_file import OperatorTokens


def test_an_operator_is_found_by_token_and_has_the_role_of_now(tmp_path: Path) -> None:
    tokens = OperatorTokens(tmp_path)
    token = tokens.add("ann", Role.ADMIN)
    operators = Operators(tokens)
    assert operators.holder(token) == "ann"
    assert operators.stamp("bob") is None
    assert operators.named("bob") is None
    found = operators.named("ann")
    assert found is not None
    assert found.role is Role.ADMIN
    tokens.change("ann", Role.VIEWER)
    changed = operators.named("ann")
    assert changed is not None
    assert changed.role is Role.VIEWER


def test_an_operator_added_again_is_another_one(tmp_path: Path) -> None:
    tokens = OperatorTokens(tmp_path)
    tokens.add("ann")
    operators = Operators(tokens)
    before = operators.stamp("ann")
    tokens.revoke("ann")
    tokens.add("ann")
    assert operators.stamp("ann") not in (None, before)


def test_a_damaged_file_is_an_error_and_not_nobody(tmp_path: Path) -> None:
    tokens = OperatorTokens(tmp_path)
    tokens.path.write_text("{")
    with pytest.raises(ConfigError):
        Operators(tokens).stamp("ann")


@pytest.mark.parametrize(
    ("own", "granted", "role"),
    [
        (None, None, None),
        (None, Role.ADMIN, Role.ADMIN),
        (Role.VIEWER, Role.ADMIN, Role.VIEWER),
        (Role.ADMIN, Role.VIEWER, Role.VIEWER),
        (Role.ADMIN, None, Role.ADMIN),
    ],
)
def test_of_a_granted_role_and_that_of_the_file_the_lower_counts(
    own: Role | None, granted: Role | None, role: Role | None, tmp_path: Path
) -> None:
    tokens = OperatorTokens(tmp_path)
    if own is not None:
        tokens.add("ann", own)
    found = Operators(tokens).signed_in("ann", granted)
    assert (found and found.role) == role
