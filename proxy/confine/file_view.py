"""What of the machine's files an agent must not reach: who could act for it outside, and what is the proxy's. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SERVICES: Final = (
    "/run/dbus",
    "/run/systemd",
    "/run/docker",
    "/run/containerd",
    "/run/crio",
    "/run/podman",
    "/run/libvirt",
    "/run/screen",
    "/run/WSL",
    "/tmp/.X11-unix",  # noqa: S108
    "/tmp/.ICE-unix",  # noqa: S108
)
"""Where services have their sockets, also those that they make later on."""
USERS: Final = ("/run/user/{user}", "/tmp/tmux-{user}")  # noqa: S108
DOCKER: Final = ("/run/docker.sock", "/var/run/docker.sock")


@dataclass(frozen=True, slots=True)
class FileView:
    """What is different about the files inside."""

    folders: tuple[str, ...] = ()
    """Covered with empty ones."""
    sockets: tuple[str, ...] = ()
    """Covered with nothing."""
    kept: tuple[str, ...] = ()
    """Seen all the same."""
    secrets: tuple[str, ...] = ()
    """Files that are empty inside."""
    unwritable: tuple[str, ...] = ()
    given: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Files that are put into covered folders."""


def plan_file_view(
    *,
    user: int,
    listening: Iterable[str],
    runtime_dir: str | None = None,
    kept: Iterable[str] = (),
    state_dirs: Iterable[str] = (),
    given: Mapping[str, bytes] | None = None,
    secrets: Iterable[str] = (),
    unwritable: Iterable[str] = (),
) -> FileView:
    """Say which files are to be different inside.

    `listening` are the machine's unix sockets, of which only `kept` stay reachable. State
    folders are empty but for what is `given`; `secrets` are files elsewhere.
    """
    states = tuple(state_dirs)
    folders = [*SERVICES, *(path.format(user=user) for path in USERS)]
    folders += [*([runtime_dir] if runtime_dir else []), *states]
    return FileView(
        folders=tuple(dict.fromkeys(folders)),
        sockets=tuple(dict.fromkeys((*listening, *DOCKER))),
        kept=tuple(kept),
        secrets=tuple(secrets),
        unwritable=(*unwritable, *states),
        given=dict(given or {}),
    )
