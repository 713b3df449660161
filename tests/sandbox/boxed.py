"""Runs a command in a sandbox, without the gate: `python -m tests.sandbox.boxed PROFILE-JSON COMMAND…`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxy.sandbox.grants import Surroundings, expand
from proxy.sandbox.plan import SandboxPlan
from proxy.sandbox.profile import SandboxProfile
from proxy.sandbox.profile_files import resolve
from proxy.sandbox.sandboxed_start import SandboxedStart, SandboxRefusedError
from proxy.sandbox.server_package import package_of
from proxy.sandbox.server_process import plan_launch

if TYPE_CHECKING:
    import socket

REFUSED = 125


async def run(profile: SandboxProfile, command: list[str], options: dict[str, Any]) -> int:
    """Run a command; return its exit code."""
    home = os.environ["HOME"]
    launch = plan_launch(command, os.environ)
    package = package_of(launch.program, launch.argv, home, "/")
    around = Surroundings(home, options.get("folder", "/"), tuple(options.get("roots", ())), ("/tmp",), package)
    grants = expand(profile, around, os.environ)
    plan = SandboxPlan(
        launch,
        grants,
        options.get("folder", "/"),
        package=package,
        require=options.get("require", False),
        namespaces=options.get("namespaces", True),
        environ=grants.env,
    )
    start = SandboxedStart(plan)
    if "vanishing" in options:
        Path(options["vanishing"]).unlink()
        Path(options["vanishing"]).symlink_to("/etc/hostname")
    process = subprocess.Popen(
        start.launch.argv,
        pass_fds=(*start.launch.descriptors, *options.get("leak", ())),
        env=dict(grants.env),
        stdin=subprocess.DEVNULL,
    )
    for descriptor in start.launch.descriptors:
        os.close(descriptor)

    async def nothing(_sockets: list[socket.socket]) -> None:
        return

    try:
        report = await start.release(nothing)
        if options.get("deaf") and start.refused is not None:
            start.refused.close()
        sys.stderr.write(f"{report}\n")
    except SandboxRefusedError as error:
        sys.stderr.write(f"refused: {error}\n")
    return await asyncio.to_thread(process.wait)


def main() -> None:
    options = json.loads(sys.argv[1])
    profile = resolve(SandboxProfile.model_validate(options.pop("profile")))
    sys.exit(asyncio.run(run(profile, sys.argv[2:], options)))


if __name__ == "__main__":
    main()
