"""One proxy and one ordinary web server for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.support.harness import Interlock, ServerHandle, start_interlock, start_python_server


class Pair(NamedTuple):
    interlock: Interlock
    server: ServerHandle

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.server.port}"


SETTINGS = {
    "header_limit": "8KiB",
    "body_limit": "64KiB",
    "connection_limit": 8,
    "stream_limit": 2,
    "workers": 1,  # which count streams each for itself
    "large_uploads": ["127.0.0.1"],
}
HASTE = {"header_timeout": 2, "body_timeout": 1}
"""For tests that wait for the time to be up; no other is to have so little of it."""


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with start_python_server("web", tmp_path_factory.mktemp("web")) as server:
        yield server


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, web: ServerHandle) -> Iterator[Pair]:
    """A proxy on default limits."""
    with start_interlock(tmp_path_factory.mktemp("proxy")) as interlock:
        yield Pair(interlock, web)


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory, web: ServerHandle) -> Iterator[Pair]:
    """A proxy on limits small enough to hit; uploads to the server may be large."""
    with start_interlock(tmp_path_factory.mktemp("tight"), settings=SETTINGS) as interlock:
        yield Pair(interlock, web)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory, web: ServerHandle) -> Iterator[Pair]:
    """A proxy that gives requests little time."""
    with start_interlock(tmp_path_factory.mktemp("hasty"), settings={**SETTINGS, **HASTE}) as interlock:
        yield Pair(interlock, web)


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with start_python_server("python_modern", tmp_path_factory.mktemp("modern"), flags=["--resumable"]) as server:
        yield server


@pytest.fixture(scope="module")
def legacy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    with start_python_server("python_sse", tmp_path_factory.mktemp("legacy")) as server:
        yield server
