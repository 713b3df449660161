"""One volley straight at the servers, and one through the proxy; every test reads their reports."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.bypass.campaign import Proxy, Range, Report, running_range
from tests.bypass.cases import CASES
from tests.bypass.shot import Route
from tests.support.harness import Certificates, Interlock, start_interlock


@pytest.fixture(scope="session")
def shooting_range(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Range]:
    with running_range(tmp_path_factory.mktemp("range"), certificates) as running:
        yield running


@pytest.fixture(scope="session")
def direct(shooting_range: Range) -> Report:
    """What the servers do with every case when nothing stands before them."""
    return shooting_range.volley(CASES)


@pytest.fixture(scope="session")
def interlocks(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates, shooting_range: Range
) -> Iterator[tuple[Interlock, Interlock]]:
    """An Interlock in regular mode, and one in reverse mode before the lenient server."""
    directory = tmp_path_factory.mktemp("interlock")
    lenient = shooting_range.servers["lenient"].url
    with contextlib.ExitStack() as stack:
        regular = stack.enter_context(start_interlock(directory / "regular", upstream_ca=certificates.ca_file))
        reverse = stack.enter_context(start_interlock(directory / "reverse", f"reverse:{lenient}"))
        yield regular, reverse


@pytest.fixture(scope="session")
def proxied(shooting_range: Range, direct: Report, interlocks: tuple[Interlock, Interlock]) -> Report:
    """What gets through Interlock; fired after the direct volley, so the two never mix."""
    regular, reverse = (Proxy(each.port, each.ca_file) for each in interlocks)
    proxies: dict[Route, Proxy] = {"regular": regular, "connect": regular, "reverse": reverse}
    return shooting_range.volley_through(proxies, CASES, direct)
