"""Plans which files a confined agent must not reach: sockets of services, and the proxy's own state. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Whole folders: services also create sockets later, and one of them, such as D-Bus, can start programs outside.
SERVICES: Final = (
    *("/run/dbus", "/run/systemd", "/run/docker", "/run/containerd", "/run/crio", "/run/podman"),
    *("/run/libvirt", "/run/screen", "/run/WSL", "/tmp/.X11-unix", "/tmp/.ICE-unix"),  # noqa: S108
)
USERS: Final = ("/run/user/{user}", "/tmp/tmux-{user}")  # noqa: S108
DOCKER: Final = ("/run/docker.sock", "/var/run/docker.sock")


@dataclass(frozen=True, slots=True)
class FileView:
    """How the files inside differ from the machine's."""

    folders: tuple[str, ...] = ()  # are empty
    sockets: tuple[str, ...] = ()  # are /dev/null, unless they are in `kept`
    kept: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()  # are empty files
    unwritable: tuple[str, ...] = ()  # are read-only
    given: dict[str, bytes] = field(default_factory=dict[str, bytes])  # are put into covered folders


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
    """Return the view for `user`: of the `listening` unix sockets only `kept` stay reachable.

    The `state_dirs` of the proxy are empty but for what is `given`; `secrets` are files elsewhere.
    """
    states, runtime = tuple(state_dirs), [runtime_dir] if runtime_dir else []
    folders = [*SERVICES, *(path.format(user=user) for path in USERS), *runtime, *states]
    return FileView(
        folders=tuple(dict.fromkeys(folders)),
        sockets=tuple(dict.fromkeys((*listening, *DOCKER))),
        kept=tuple(kept),
        secrets=tuple(secrets),
        unwritable=(*unwritable, *states),
        given=dict(given or {}),
    )
