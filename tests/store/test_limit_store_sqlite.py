"""The file of limits: a sliding window as a model has it, exact among processes, and outliving their end."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.errors import StoreUnavailableError
from proxy.store.limit_store_sqlite import PLACE_SECONDS, SqliteLimits
from tests.support.limit_fixture import HOUR, WindowModel, charge
from tests.support.timeouts import PATIENCE

MOST = 10
STEPS = st.lists(
    st.one_of(
        # Amounts and waits such that budgets are nearly full most of the time: only there can anything go wrong.
        st.tuples(st.just("call"), st.sampled_from([0, 1, 2, 2, 3, 3, 4, 5, MOST, MOST + 1])),
        st.tuples(st.just("wait"), st.sampled_from([0.25, 1.0, 600.0, 1800.0, 3599.75, 3600.0])),
        st.tuples(st.just("back"), st.integers(0, 3)),
        st.tuples(st.just("sweep"), st.just(0)),
    ),
    min_size=15,
    max_size=40,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_763_000_000.0

    def __call__(self) -> float:
        return self.now


@given(steps=STEPS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_window_is_that_of_the_model(
    steps: list[tuple[str, float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    clock = Clock()
    store = SqliteLimits(tmp_path_factory.mktemp("limits") / "limits.db", clock)
    asyncio.run(follow(store, WindowModel(MOST, HOUR), clock, steps))


async def follow(store: SqliteLimits, model: WindowModel, clock: Clock, steps: list[tuple[str, float]]) -> None:
    made: list[str] = []
    for number, (what, value) in enumerate(steps):
        # The store never gives two calls of a budget the same time: so that both count alike, the clock ticks first.
        clock.now += 2**-10
        if what == "call":
            await call(store, model, clock, f"c{number}", int(value))
            made = [*made, f"c{number}"][-4:]
        elif what == "wait":
            clock.now += value
        elif what == "back" and made:
            model.give_back(chosen := made[int(value) % len(made)])
            await store.give_back(chosen, [charge(most=MOST)])
        elif what == "sweep":
            await store.maintain()
        (used,) = [one.used for one in await store.usage([('["mail",', HOUR)])] or [0]
        assert used == model.used(clock.now)
    await store.close()


async def call(store: SqliteLimits, model: WindowModel, clock: Clock, name: str, amount: int) -> None:
    fits = model.reserve(name, amount, clock.now)
    exceeded = await store.reserve(name, [charge(amount=amount, most=MOST)])
    assert fits is not bool(exceeded)
    if exceeded:
        room_at = model.room_at(amount, clock.now)
        expected = None if room_at is None else room_at - clock.now
        assert exceeded[0].retry_after == (None if expected is None else pytest.approx(expected, abs=1e-5))


async def test_a_clock_that_is_set_back_forgets_nothing(tmp_path: Path) -> None:
    clock = Clock()
    store = SqliteLimits(tmp_path / "limits.db", clock)
    assert await store.reserve("c0", [charge(most=2)]) == []
    clock.now -= 60
    assert await store.reserve("c1", [charge(most=2)]) == []
    for back in (1.0, 2 * HOUR, 24 * HOUR):
        clock.now -= back
        assert len(await store.reserve("c2", [charge(most=2)])) == 1
    await store.close()


def reserve_many(path: Path, start: multiprocessing.synchronize.Event, name: str, counted: Path) -> None:  # type: ignore[name-defined]
    async def run() -> None:
        store = SqliteLimits(path)
        start.wait()
        answers = await asyncio.gather(*(store.reserve(f"{name}-{n}", [charge(most=20)]) for n in range(32)))
        more = [await store.reserve(f"{name}+{n}", [charge("more", most=600)]) for n in range(500)]
        counted.write_text(f"{sum(not refused for refused in answers)} {sum(not refused for refused in more)}")
        os.kill(os.getpid(), signal.SIGKILL)  # nothing is written after this that is not there already

    asyncio.run(run())


def test_64_callers_in_two_processes_are_never_one_too_many_and_a_kill_forgets_none(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Event()
    files = [tmp_path / "counted-0", tmp_path / "counted-1"]
    workers = [
        context.Process(target=reserve_many, args=(tmp_path / "limits.db", start, f"w{n}", files[n])) for n in range(2)
    ]
    for worker in workers:
        worker.start()
    start.set()
    for worker in workers:
        worker.join(PATIENCE)
        assert worker.exitcode == -signal.SIGKILL
    counts = [list(map(int, file.read_text().split())) for file in files]
    assert [sum(each) for each in zip(*counts, strict=True)] == [20, 600]

    async def after() -> None:
        store = SqliteLimits(tmp_path / "limits.db")
        (exceeded,) = await store.reserve("late", [charge(most=20)])
        assert exceeded.used == 20
        await store.close()

    asyncio.run(after())


async def test_places_of_a_process_that_is_gone_are_free_again_after_a_while(tmp_path: Path) -> None:
    clock = Clock()
    gone, here = (SqliteLimits(tmp_path / "limits.db", clock) for _ in range(2))
    place = charge("few", most=2, seconds=0)
    assert await gone.reserve("c0", [place]) == []
    assert await here.reserve("c1", [place]) == []
    clock.now += PLACE_SECONDS - 1
    await here.maintain()
    assert len(await here.look([place])) == 1
    clock.now += 2
    await here.maintain()
    assert await here.reserve("c2", [place]) == []
    assert len(await here.look([place])) == 1
    await gone.close()
    await here.close()


async def test_a_file_that_is_none_refuses(tmp_path: Path) -> None:
    (tmp_path / "limits.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreUnavailableError, match=r"limits\.db"):
        await SqliteLimits(tmp_path / "limits.db").reserve("c0", [charge()])
    (tmp_path / "folder").write_text("a file")
    with pytest.raises(StoreUnavailableError):
        await SqliteLimits(tmp_path / "folder" / "limits.db").look([charge()])
