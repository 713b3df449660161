"""Explains why the kernel refuses namespaces, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_OUTSIDE = "in a container, confine it from outside with `interlock confine rules`: docs/confine.md has the recipes"
_SWITCHES: Final = (
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "10000"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0, or an AppArmor profile that has `userns,`"),
)
# A NamespaceError that begins so is the kernel's refusal; others, such as nft's, have nothing to do with settings.
_KERNEL: Final = ("a user namespace", "network, mount", "mounting")
_PACKAGES: Final = {"'nft'": "nftables", "'ip'": "iproute2"}


def read_switch(name: str) -> str | None:
    """Return the value of a sysctl; None where the kernel has no such."""
    try:
        return Path("/proc/sys", *name.split(".")).read_text().strip()
    except OSError:
        return None


def closed_switches(read: Callable[[str], str | None] = read_switch) -> list[str]:
    """Return the settings that refuse namespaces to ordinary users here, each with how to change it."""
    return [f"{name} is {bad}: sudo sysctl {name}={good}" for name, bad, good in _SWITCHES if read(name) == bad]


def with_settings(problem: str, read: Callable[[str], str | None] = read_switch) -> str:
    """Return what a sandbox lacks, with the settings that refuse it namespaces where it lacks those."""
    closed = closed_switches(read) if "namespace" in problem else []
    return f"{problem} ({'; '.join(closed)})" if closed else problem


def explain(problem: str, read: Callable[[str], str | None] = read_switch) -> str:
    """Return what the system refused, because of which setting, and how to change that."""
    for program, package in _PACKAGES.items():
        if f"no program {program}" in problem:
            return f"{problem}; install it, for example: sudo apt-get install {package}"
    if not problem.startswith(_KERNEL):
        return problem
    closed = closed_switches(read)
    return f"the system refuses {problem}" + (f" ({'; '.join(closed)})" if closed else f"; {_OUTSIDE}")
