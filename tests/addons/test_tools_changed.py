"""Clients that hold an event stream open are notified when tools change."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from mitmproxy import ctx
from mitmproxy.http import HTTPFlow
from mitmproxy.test import tflow

from addons import flow_state
from addons.tools_changed import Announcer
from proxy.core.model import Principal


def stream(agent: str = "bot", event: bytes | None = b"data: x\n\n") -> HTTPFlow:
    flow = tflow.tflow()
    state = flow_state.state_of(flow)
    state.principal = Principal(agent)
    state.rewriter = mock.Mock()
    state.rewriter.tools_changed.return_value = event
    return flow


@pytest.fixture
def pushed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect what is injected into connections."""
    injected: list[Any] = []
    server = mock.Mock()
    server.inject_event.side_effect = injected.append
    monkeypatch.setattr(ctx, "master", mock.Mock(addons={"proxyserver": server}), raising=False)
    return injected


def test_open_streams_are_counted_for_each_agent() -> None:
    announcer, first, second = Announcer(), stream("a"), stream("b")
    for flow in (first, second, tflow.tflow()):
        announcer.responseheaders(flow)
    assert (announcer.count, announcer.streams_of("a"), announcer.streams_of("c")) == (2, 1, 0)
    announcer.response(first)
    announcer.error(second)
    assert announcer.count == 0


def test_a_change_is_pushed_to_the_streams_that_may_carry_it(pushed: list[Any]) -> None:
    announcer, told, silent = Announcer(), stream(), stream(event=None)
    announcer.responseheaders(told)
    announcer.responseheaders(silent)
    announcer.tools_changed("files")
    assert [(event.flow, event.message) for event in pushed] == [(told, b"data: x\n\n")]


def test_a_stream_whose_connection_is_gone_is_forgotten(pushed: list[Any]) -> None:
    announcer = Announcer()
    announcer.responseheaders(stream())
    ctx.master.addons["proxyserver"].inject_event.side_effect = ValueError
    announcer.tools_changed()
    assert (announcer.count, pushed) == (0, [])
