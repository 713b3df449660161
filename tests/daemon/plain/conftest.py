"""Tests of tests/daemon once more, without what is there for speed alone; `make test-plain` runs all tests so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def without_speed() -> Iterator[None]:
    """Start every proxy of a module with the setting `fast` off."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INTERLOCK_FAST", "off")
        yield
