"""One compilation of the detectors, and one parsing of a policy's text, for all tests of a process.

Hyperscan takes half a second for the detectors, ruamel a fifth for the shipped policy, and a test's new state folder
keeps neither. A compiled database does not change, and whoever scans has scratch space of his own (`PatternSet`);
parsed nodes are only read. Processes that tests start do all of it themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from proxy.policy import yaml_file
from proxy.redact import hyperscan_db

compile_anew = hyperscan_db.compile_all


@functools.cache
def _compiled(many: tuple[str, ...], once: tuple[str, ...]) -> Any:
    return compile_anew(many, once)


def _shared(many: Sequence[str], once: Sequence[str]) -> Any:
    return _compiled(tuple(many), tuple(once))


def share() -> None:
    """Let sets of the same expressions have the same database, and equal texts the same nodes."""
    hyperscan_db.compile_all = _shared
    yaml_file.parse_yaml = functools.lru_cache(maxsize=64)(yaml_file.parse_yaml)
