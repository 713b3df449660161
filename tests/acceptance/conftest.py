"""Fixtures of the acceptance tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.acceptance.python_routes import Routes
from tests.support.harness import Certificates


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Routes]:
    """Ways to the Python servers; each process is started once per module."""
    with contextlib.closing(Routes(tmp_path_factory.mktemp("routes"), certificates)) as ready:
        yield ready
