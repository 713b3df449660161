"""`tests/commands/test_run_sandbox.py` reaches hosts with whole servers; here, what is read from profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxy.config import Settings
from proxy.errors import ConfigError
from proxy.runtime.sandbox_network import local_ports, ports_of, way_out

if TYPE_CHECKING:
    from pathlib import Path


def test_ports_come_from_the_hosts():
    assert ports_of(["a.example", "b.example:8443", "[::1]:5432"]) == (80, 443, 5432, 8443)
    assert local_ports(["localhost:5432", "a.example:22"]) == (5432,)
    assert local_ports(None) == ()


def test_without_a_proxy_there_is_no_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none runs on"):
        way_out(("a.test:443",), Settings(state_dir=tmp_path))
