"""Fixtures that many tests share."""

from __future__ import annotations

import pytest

from tests.harness import Certificates, make_certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA and a leaf certificate for servers on loopback."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))
