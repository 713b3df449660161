"""Forks of a context and options that are read are those of mitmproxy, made with fewer copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from mitmproxy.connection import Client
from mitmproxy.options import Options
from mitmproxy.optmanager import _Option
from mitmproxy.proxy.context import Context

from addons.mitm.fast import fewer_copies

THEIR_FORK = Context.fork
THEIR_CURRENT = _Option.current


@pytest.fixture(params=["theirs", "ours"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """mitmproxy's own methods and ours: what a test says holds for both."""
    monkeypatch.setattr(Context, "fork", THEIR_FORK)
    monkeypatch.setattr(_Option, "current", THEIR_CURRENT)
    if request.param == "ours":
        fewer_copies.install()
    return request.param


def test_a_fork_has_the_same_connections_and_a_list_of_layers_of_its_own(either: str) -> None:
    context = Context(Client(peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2), timestamp_start=1), Options())
    context.layers.append(either)  # type: ignore[arg-type]
    fork = context.fork()
    assert vars(fork).keys() == vars(context).keys()
    assert (fork.client, fork.server, fork.options) == (context.client, context.server, context.options)
    assert fork.server is context.server
    fork.layers.clear()
    assert context.layers == [either]


@pytest.mark.parametrize("given", [{}, {"http2": False, "allow_hosts": ["a"]}], ids=["default", "set"])
def test_an_option_that_can_change_is_still_copied(either: str, given: dict[str, Any]) -> None:
    options = Options(**given)
    hosts: list[str] = options.allow_hosts  # type: ignore[assignment]
    assert hosts == given.get("allow_hosts", [])
    hosts.append("b")
    assert "b" not in options.allow_hosts
    assert options.http2 is given.get("http2", True)
    assert options.client_certs is None
