"""Finds out what a profile grants on this machine, for what is judged by paths: the supervisor and violations."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from proxy.sandbox.file_scope import FileLimits, PathSet
from proxy.sandbox.grants import expand, substitute
from proxy.sandbox.path_globs import compile_path
from proxy.sandbox.profile import PRESETS, SandboxProfile
from proxy.sandbox.profile_files import load_profile
from proxy.sandbox.secrets import is_secret
from proxy.sandbox.violations import Boundaries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from proxy.sandbox.grants import Grants, Surroundings

_MARKS = frozenset("*?[")


def boundaries(
    profile: SandboxProfile,
    around: Surroundings,
    environ: Mapping[str, str],
    grants: Grants | None = None,
    *,
    bound: bool = True,
) -> Boundaries:
    """Return what a profile, with all that it extends, grants; `grants` where it was expanded already.

    Without `bound` nothing is open at all times: that matters only where tools are bound.
    """
    grants = grants or expand(profile, around, environ)
    always = expand(runtime_part(profile, around), around, environ) if bound else grants
    hidden_by = _hidden_by(profile, around, grants)
    files = FileLimits(
        read=_real((*grants.read, *grants.exec)),
        write=_real(grants.write),
        always_read=_real((*always.read, *grants.exec)),
        always_write=_real(always.write),
        fresh=_real(grants.temporary),
        hidden=lambda path: hidden_by(path) is not None,
    )
    programs = _real((*grants.exec, *around.package))
    return Boundaries(files, programs, frozenset(grants.sockets), grants.hosts, hidden_by, os.path.lexists)


def runtime_part(profile: SandboxProfile, around: Surroundings) -> SandboxProfile:
    """Return the part of a profile that is open at all times, whatever a call names.

    That is what presets grant, the server's own package, secrets, which are named one by one, and single files. The
    folders and globs of the profile itself are where the user's files are. In temporary folders the server opens what
    it made itself.
    """
    presets = [load_profile(name) for name in ("base", *profile.extends) if name in PRESETS]
    read = {line for preset in presets for line in preset.read}
    write = {line for preset in presets for line in preset.write}
    return profile.model_copy(
        update={
            "read": [line for line in profile.read if line in read or _is_single_file(line, around)],
            "write": [line for line in profile.write if line in write or _is_single_file(line, around)],
        }
    )


def _is_single_file(line: str, around: Surroundings) -> bool:
    paths = substitute(line, around)
    return _MARKS.isdisjoint(line) and bool(paths) and all(os.path.isfile(path) for path in paths)  # noqa: PTH113


def _real(paths: Iterable[str]) -> PathSet:
    # As they are written too: what does not exist yet may be no link later.
    given = tuple(paths)
    return PathSet((*given, *map(os.path.realpath, given)))


def _hidden_by(profile: SandboxProfile, around: Surroundings, grants: Grants) -> Callable[[str], str | None]:
    tests = [(f"hide: {line}", compile_path(pattern)) for line in profile.hide for pattern in substitute(line, around)]
    covered = PathSet(grants.hidden)
    opened = _real(path for line in profile.secrets for path in substitute(line.removesuffix("/**"), around))

    def hidden_by(path: str) -> str | None:
        for line, fits in tests:
            if fits(path):
                return line
        if path in opened:
            return None
        return "it is a secret that secrets does not name" if path in covered or is_secret(path, around.homes) else None

    return hidden_by
