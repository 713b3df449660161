"""One compilation of the detectors, and one parsing of a policy's text, for all tests of a process.

Hyperscan takes seconds for the detectors and the patterns of incoming text, ruamel a fifth of one for the shipped
policy, and a test's new state folder keeps neither. What the zygote has compiled is taken from it. A compiled database
does not change, and whoever scans has scratch space of his own (`PatternSet`); parsed nodes are only read. Processes
that tests start do all of it themselves.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from proxy.policy import yaml_file
from proxy.redact import hyperscan_db
from proxy.system.secret_files import FileCache

compile_anew = hyperscan_db.compile_all


@functools.cache
def _compiled(many: tuple[str, ...], once: tuple[str, ...], kept: Path | None) -> Any:
    found = None if kept is None else hyperscan_db.load(many, once, FileCache(kept))
    return compile_anew(many, once) if found is None else found


def share(kept: Path | None = None) -> None:
    """Let sets of the same expressions have the same database, and equal texts the same nodes.

    `kept` is the cache of a state folder, which may come to be later: what is there is not compiled.
    """
    hyperscan_db.compile_all = lambda many, once: _compiled(tuple(many), tuple(once), kept)
    yaml_file.parse_yaml = functools.lru_cache(maxsize=64)(yaml_file.parse_yaml)
