"""Deciding plain traffic by host, address, port and method. Pure, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.policy.rules import Egress


class CompiledEgress:
    """The egress section, ready to decide."""

    def __init__(self, section: Egress, *, version: str = "") -> None:
        self.section = section
        self.version = version
