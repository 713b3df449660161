"""One look at Postgres: what is seen, and that nothing is changed by it."""

from __future__ import annotations

from proxy.doctor.postgres import inspect_database
from proxy.store.migrate import migrations
from tests.support.postgres import Postgres


async def test_a_look_sees_all_and_changes_nothing(postgres: Postgres, database_url: str) -> None:
    count = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables"
    before = postgres.psql(count, database_url)
    seen = await inspect_database(database_url)
    assert (seen.problem, seen.migrations, seen.user) == (None, len(migrations("postgres")), "postgres")
    assert (seen.may_insert, seen.may_change, seen.has_tomorrow) == (True, True, True)
    assert abs(seen.skew) <= max(1.0, seen.delay)
    assert seen.major >= 15
    assert postgres.psql(count, database_url) == before
