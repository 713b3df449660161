"""Starts a server in its sandbox: hands the plan to `sandbox_exec`, and lets the server begin once all holds."""

from __future__ import annotations

import asyncio
import json
import marshal
import os
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proxy.sandbox import sandbox_exec
from proxy.sandbox.refusal import SandboxRefusedError
from proxy.sandbox.refused_calls import RefusedCalls
from proxy.sandbox.server_process import SANDBOX, Launch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from proxy.sandbox.plan import SandboxPlan

MAX_SOCKETS = 250  # the kernel passes 253 at a time
SET_UP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """What holds for a server."""

    landlock: int = 0  # the version of its interface; 0 where the kernel has none
    namespaces: bool = False
    own_proc: bool = False
    keyring: bool = False
    missing: tuple[str, ...] = ()  # what this system cannot hold, in words

    @property
    def complete(self) -> bool:
        return not self.missing


def read_report(found: dict[str, Any], limits: dict[str, int], *, root: bool) -> SandboxReport:
    """Return what `sandbox_exec` reports, with what is missing in words."""
    missing: list[str] = []
    if not found.get("namespaces"):
        missing.append(f"no namespaces ({found.get('missing', 'refused')}): Landlock and seccomp alone, no network")
    if not found.get("landlock"):
        missing.append("no Landlock: programs are not limited to the list")
    if found.get("namespaces") and not found.get("proc"):
        missing.append("no /proc of its own")
    if root and "processes" in limits:
        missing.append("the kernel does not count root's processes")
    return SandboxReport(
        int(found.get("landlock", 0)),
        bool(found.get("namespaces")),
        bool(found.get("proc")),
        bool(found.get("keyring")),
        tuple(missing),
    )


class SandboxedStart:
    """One start. `launch` is what to run in place of the server's own command."""

    def __init__(self, plan: SandboxPlan) -> None:
        self._plan = plan
        self.refused: RefusedCalls | None = None  # what tells of the system calls that seccomp refuses
        self._spec = plan.spec()
        content = os.memfd_create("interlock-sandbox", os.MFD_CLOEXEC)
        # By JSON, which refuses what is not plain; read by marshal, which costs a start nothing to import.
        data = marshal.dumps(json.loads(json.dumps(self._spec)))
        with open(content, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(content, 0, os.SEEK_SET)
        self._channel, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)
        inner = inside.detach()
        self.launch = Launch(
            sys.executable,
            (sys.executable, *SANDBOX, str(content), str(inner)),
            descriptors=(content, inner, *((plan.supervisor,) if plan.supervisor is not None else ())),
            environ=plan.environ,
            own_stderr=True,
            made=plan.grants.made,
        )

    async def release(self, serve: Callable[[list[socket.socket]], Awaitable[None]]) -> SandboxReport:
        """Wait until all holds, have `serve` take the ways out, let the server begin; return what holds.

        Raises SandboxRefusedError where a step failed: then the server's program is never executed.
        """
        try:
            async with asyncio.timeout(SET_UP_SECONDS):
                found, handles = await self._receive()
                if "sockets" in found:
                    await serve([socket.socket(fileno=handle) for handle in handles])
                    found, handles = await self._receive()
            if found.get("told") and len(handles) == 1:
                self.refused = RefusedCalls(handles[0], asyncio.get_running_loop())
            if "error" in found:
                raise SandboxRefusedError(f"the sandbox cannot be set up: {found['error']}")
            report = read_report(found, self._spec["limits"], root=os.geteuid() == 0)
            if self._plan.require and not report.complete:
                raise SandboxRefusedError(f"the sandbox is not complete: {'; '.join(report.missing)}")
            self._channel.send(sandbox_exec.GO)
        except (TimeoutError, OSError, ValueError) as error:
            raise SandboxRefusedError(f"the sandbox cannot be set up: {error or 'no answer'}") from error
        else:
            return report
        finally:
            self._channel.close()  # without a GO it ends

    async def _receive(self) -> tuple[dict[str, Any], list[int]]:
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._channel, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(self._channel)
        data, handles, _, _ = socket.recv_fds(self._channel, sandbox_exec.MAX_REPORT, MAX_SOCKETS)
        if not data:
            raise ValueError("it ended before it was ready")
        return json.loads(data), handles
