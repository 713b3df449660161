"""`tests/stdio/test_bound_files.py` runs whole servers; here, what is put together."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from proxy.core.model import Context, Principal
from proxy.runtime.file_binding import bind_files, keep_violations
from proxy.runtime.sandboxed_run import ChosenSandbox, SandboxedRun
from proxy.sandbox.grants import Surroundings, expand
from proxy.sandbox.profile import SandboxProfile, ToolProfile
from proxy.sandbox.profile_files import resolve
from proxy.sandbox.server_process import Launch

if TYPE_CHECKING:
    from pathlib import Path


def test_relative_names_are_below_the_working_folder_and_the_roots(tmp_path: Path) -> None:
    profile = resolve(SandboxProfile(tools={"read": ToolProfile(files="from arguments")}))
    around = Surroundings("/home/me", str(tmp_path), ("/srv/root",))
    ours, theirs = socket.socketpair()
    with theirs:
        box = SandboxedRun(
            ChosenSandbox(profile, "x"),
            Launch("/bin/true", ("true",)),
            ("true",),
            None,
            expand(profile, around, {}),
            around=around,
            supervised=ours,
        )
        assert box.is_supervised
        gate: Any = type("Gate", (), {"recorder": None, "in_flight": SimpleNamespace(under_way=list)})()

        async def bind() -> frozenset[str]:
            context = Context(Principal("bot"), "files", transport="stdio")
            bound = bind_files(box, keep_violations(box, gate, context, lambda: None), None)  # type: ignore[arg-type, return-value]
            named = bound._named({"path": "a"})
            bound.stop()
            return named

        assert asyncio.run(bind()) == {f"{tmp_path}/a", "/srv/root/a"}
