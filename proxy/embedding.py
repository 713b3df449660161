"""How mitmproxy is taken in: only what is used of it.

`mitmproxy.addons` imports every addon there is, with their web framework and LDAP client: half a second of each
start. An empty package of that name, put in place first, lets the few that are used be imported by themselves.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

PACKAGE = "mitmproxy.addons"


def import_only_what_is_used() -> None:
    """Put the empty package in place, unless the real one is there already."""
    spec = importlib.util.find_spec("mitmproxy")
    if PACKAGE in sys.modules or spec is None or spec.origin is None:
        return
    package = types.ModuleType(PACKAGE)
    package.__path__ = [str(Path(spec.origin).parent / "addons")]
    sys.modules[PACKAGE] = package
