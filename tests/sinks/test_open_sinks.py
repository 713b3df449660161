"""A kind of sink is imported when one of it is opened; what is missing is told with what to install."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from proxy.errors import ConfigError
from proxy.sinks.open_sinks import KINDS, check_sinks, open_sink
from proxy.sinks.settings import NatsSettings


def test_every_kind_has_its_module() -> None:
    for module, _, _ in KINDS.values():
        assert callable(importlib.import_module(module).open_sink)


def test_what_is_not_installed_is_told_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nats", None)
    with pytest.raises(ConfigError, match=r"sink nats: .* needs nats; pip install 'mcp-interlock\[nats\]'"):
        open_sink(NatsSettings(kind="nats", url="nats://h"))


def test_a_secret_that_is_missing_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="NOT_THERE is not set"):
        check_sinks((NatsSettings(kind="nats", url="nats://h", token="env:NOT_THERE"),))


def test_without_sinks_none_of_their_clients_is_imported() -> None:
    code = "import sys, proxy.runtime.wiring; print(*{'nats', 'clickhouse_connect', 'pyarrow'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "\n"
