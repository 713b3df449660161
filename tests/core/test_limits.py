"""The values of limits."""

from proxy.core.limits import DECIMALS, MAX_DIGITS
from tests.support.limit_fixture import charge


def test_a_charge_is_a_value() -> None:
    assert charge() == charge()
    assert charge() != charge(amount=2)
    assert charge().blocks
    assert not charge().asks


def test_a_sum_has_room_for_every_currency() -> None:
    assert DECIMALS >= 18  # ether
    assert MAX_DIGITS >= 18
