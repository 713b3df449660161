"""The outbox on SQLite and Postgres alike. How it is used is in tests/notify/test_notifier.py."""

from __future__ import annotations

import asyncio

from proxy.core.proposals import State
from proxy.store.notice_store import Notices
from proxy.store.proposal_store import Proposals

NOW = 1_763_000_000.25


async def test_a_notice_is_there_once_whoever_puts_it(store: Proposals) -> None:
    outbox = Notices(store.database)
    put = await asyncio.gather(*(outbox.add("ops", "p\0", State.PENDING, {"n": n}, NOW) for n in range(8)))
    assert sum(put) == 1
    assert await outbox.add("ops", "p\0", State.APPROVED, {}, NOW)
    assert await outbox.add("chat", "p\0", State.PENDING, {}, NOW)


async def test_one_of_many_claims_it_and_what_is_sent_is_due_no_more(store: Proposals) -> None:
    outbox = Notices(store.database)
    await outbox.add("ops", "p\0", State.PENDING, {"x": 1}, NOW)
    assert await outbox.claim(NOW - 1, NOW) is None
    claimed = [one for one in await asyncio.gather(*(outbox.claim(NOW, NOW + 60) for _ in range(8))) if one]
    (due,) = claimed
    assert (due.proposal_id, due.state, due.body, due.attempts) == ("p\0", State.PENDING, {"x": 1}, 0)
    await outbox.failed(due, "no", NOW + 5)
    again = await outbox.claim(NOW + 5, NOW + 65)
    assert again is not None
    assert again.attempts == 1
    await outbox.sent(again, NOW + 6)
    assert await outbox.claim(NOW + 9999, NOW + 99_999) is None
