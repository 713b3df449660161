"""Puts together what binds a local server's files to its calls, where its profile says `files: from arguments`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.sandbox.boundaries import boundaries
from proxy.sandbox.grants import Surroundings
from proxy.sandbox.profile_files import resolve
from proxy.sandbox.server_package import package_of, roots_of
from proxy.stdio.bound_files import BoundFiles
from proxy.stdio.violation_keeper import ViolationKeeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.core.model import Context
    from proxy.gate.gate import Gate
    from proxy.sandbox.profile import SandboxProfile
    from proxy.sandbox.server_process import Launch


def binds_files(profile: SandboxProfile | None) -> bool:
    """Return whether a profile binds the files of some tool. What is only watched is not bound."""
    if profile is None or not profile.enforced:
        return False
    return any(tool.files == "from arguments" for tool in profile.tools.values())


def surroundings(launch: Launch) -> Surroundings:
    """Return what the variables of a profile stand for, for a server that is started from here."""
    home, cwd = str(Path.home()), str(Path.cwd())
    package = package_of(launch.program, launch.argv, home, cwd)
    return Surroundings(home, cwd, roots_of(launch.argv, home, cwd), package=package, path=os.environ.get("PATH", ""))


def bind_files(
    profile: SandboxProfile,
    launch: Launch,
    gate: Gate,
    context: Context,
    end: Callable[[], None],
    *,
    trace: int | None = None,
    private_tmp: bool = False,
) -> BoundFiles:
    """Return what binds the files of the server that `launch` starts. Raises SandboxProfileError.

    `private_tmp`: the launcher gives the server temporary folders of its own.
    """
    around = surroundings(launch)
    profile = resolve(profile)
    granted = boundaries(profile, around, os.environ, private_tmp=private_tmp)
    keeper = ViolationKeeper(gate, context, profile, end, asyncio.get_running_loop())
    folders = tuple(dict.fromkeys((around.cwd, *around.roots)))
    return BoundFiles(profile, granted, folders, around.home, keeper.take, trace)
