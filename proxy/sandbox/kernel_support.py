"""Finds out what a sandbox can hold on this system, for people who ask."""

from __future__ import annotations

import os
from dataclasses import dataclass

from proxy.sandbox.landlock import version


@dataclass(frozen=True, slots=True)
class KernelSupport:
    landlock: int  # the version of its interface; 0 where there is none
    namespaces: bool  # whether this user may make namespaces

    def __str__(self) -> str:
        files = f"Landlock {self.landlock}" if self.landlock else "no Landlock"
        return f"{files}, {'user namespaces' if self.namespaces else 'no user namespaces: it would not be complete'}"


def find_support() -> KernelSupport:
    """Return what this system can hold for this user."""
    return KernelSupport(version(), _may_make_namespaces())


def _may_make_namespaces() -> bool:
    child = os.fork()  # tried by a child: who has entered a namespace cannot leave it
    if child == 0:
        code = 1
        try:
            os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS | os.CLONE_NEWNET)
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0
