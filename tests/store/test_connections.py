"""Single connections: times as seconds, errors without a password."""

from __future__ import annotations

import pytest

from proxy.errors import SchemaError, StoreUnavailableError
from proxy.store.connections import connect, unavailable
from tests.support.harness import free_port


@pytest.mark.parametrize("seconds", [0.0, -1.5, 946_684_800.0, 1_763_000_000.123457, 32_503_680_000.0])
async def test_times_are_seconds_both_ways(seconds: float, database_url: str) -> None:
    connection = await connect(database_url)
    assert await connection.fetchval("SELECT $1::timestamptz", seconds) == pytest.approx(seconds, abs=1e-6, rel=0)
    assert await connection.fetchval("SELECT extract(epoch FROM $1::timestamptz)::float8", seconds) == pytest.approx(
        seconds, abs=1e-6, rel=0
    )
    assert await connection.fetchval("SELECT $1::timestamptz", None) is None
    await connection.close()


async def test_no_connection_is_told_without_the_password() -> None:
    with pytest.raises(StoreUnavailableError, match=r"u:\*\*\*@127") as caught:
        await connect(f"postgresql://u:s3cret@127.0.0.1:{free_port()}/x", 1)
    assert "s3cret" not in str(caught.value)


async def test_a_wrong_url_is_told() -> None:
    with pytest.raises(StoreUnavailableError, match="write postgresql://"):
        await connect("http://x")


def test_an_error_of_ours_stays_what_it_is_and_others_say_what_they_can() -> None:
    ours = SchemaError("x")
    assert unavailable("postgresql://h/d", ours) is ours
    assert "no answer in time" in str(unavailable("postgresql://h/d", TimeoutError()))
    assert "first" in str(unavailable("postgresql://h/d", OSError("first\nsecond")))
    assert "second" not in str(unavailable("postgresql://h/d", OSError("first\nsecond")))
    assert "KeyError" in str(unavailable("postgresql://h/d", KeyError()))
