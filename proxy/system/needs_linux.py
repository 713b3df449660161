"""Which commands need Linux, and what to say elsewhere. Pure.

They start processes that must end with their owner, which takes prctl and pidfds, and look into /proc. Without these a
server could outlive the gate in front of it, so they do not start at all.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: Final = frozenset({"up", "stop", "run", "exec", "confine", "probe"})
# They write `interlock run` into clients' configurations: there it would not start.
WRITERS: Final = frozenset({"setup", "wrap"})
HARMLESS: Final = frozenset({"--help", "-h", "--undo", "--dry-run"})


def why_not_here(words: Sequence[str], platform: str = sys.platform) -> str | None:
    """Return why this command line cannot be carried out on a platform; None if it can."""
    if platform == "linux" or not words or words[0] not in COMMANDS | WRITERS:
        return None
    own = words[: words.index("--")] if "--" in words else words
    if HARMLESS & set(own):
        return None
    what = "writes commands that need" if words[0] in WRITERS else "needs"
    return (
        f"`interlock {words[0]}` {what} Linux, and this is {platform}; use it in a Linux virtual machine, in a "
        "container or in WSL 2 (docs/operations.md, Without Linux)"
    )
