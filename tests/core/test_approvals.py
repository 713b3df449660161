"""What each role may do."""

from __future__ import annotations

from proxy.core.approvals import Role


def test_each_role_may_do_what_those_before_it_may() -> None:
    order = list(Role)
    assert order == ["viewer", "approver", "admin"]
    for number, role in enumerate(order):
        assert [role.includes(needed) for needed in order] == [place <= number for place in range(3)]
