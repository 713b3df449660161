"""What tests open is closed when they end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from tests.support.otlp_receiver import Receiver, receiver

type Opened = Callable[[Any], Any]


@pytest.fixture
def collector() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    made: list[Any] = []

    def keep(one: Any) -> Any:
        made.append(one)
        return one

    yield keep
    for one in made:
        await one.close()
