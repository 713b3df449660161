"""Fixtures that many tests share."""

from __future__ import annotations

import pytest
import structlog

from tests.harness import Certificates, make_certificates


@pytest.fixture(autouse=True)
def plain_logs() -> None:
    """Log lines without rich's tracebacks, which take a second each."""
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
