"""Fixtures that many tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest
import structlog

from tests.harness import Certificates, make_certificates

if TYPE_CHECKING:
    from tests.postgres import Postgres


# Examples are found on any machine, however busy; tests that need more of them say so themselves.
hypothesis.settings.register_profile("house", deadline=None, max_examples=40)
hypothesis.settings.load_profile("house")


@pytest.fixture(autouse=True)
def plain_logs() -> None:
    """Log lines without rich's tracebacks, which take a second each."""
    structlog.reset_defaults()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
        ]
    )


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA and a leaf certificate for servers on loopback."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real Postgres server, this worker's own."""
    from tests.postgres import Postgres

    server = Postgres()
    yield server
    server.stop()


@pytest.fixture
def database_url(postgres: Postgres) -> Iterator[str]:
    """The URL of an empty Postgres database with our schema."""
    with postgres.lend() as url:
        yield url
