"""A service manager hears which process serves."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from proxy.system.service_manager import tell_ready


def test_readiness_and_the_main_process_are_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(5)
        tell_ready({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert manager.recv(100).decode().split("\n") == ["READY=1", f"MAINPID={os.getpid()}"]


def test_without_a_manager_or_with_one_that_is_gone_nothing_fails(tmp_path: Path) -> None:
    tell_ready({})
    tell_ready({"NOTIFY_SOCKET": str(tmp_path / "none")})
