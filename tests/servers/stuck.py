"""A stdio server that answers nothing more after one call: with `always` any call of `count`, else a large one.

The large one is busy for as long as `BUSY_SECONDS` says, and waits then: more is the same to who looks at it.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from tiny import Tiny

server = Tiny("stuck")
ALWAYS = "always" in sys.argv
BUSY_SECONDS = 1.2


@server.tool("Counts up to a number", {"number": {"type": "integer"}})
def count(number: int) -> str:
    """Do the work of a number that doubles with each one more."""
    if number > 50:
        enough = time.process_time() + BUSY_SECONDS
        while time.process_time() < enough:
            pass
    while ALWAYS or number > 50:
        signal.pause()
    return str(number)


@server.tool("Shows one of the notes", {"title": {"type": "string"}})
def show_note(title: str) -> str:
    """Take an argument for a file's name."""
    note = Path.home() / "documents" / title
    return "here it is" if note.is_file() and note.read_text() else "there is none"


@server.tool("Doubles a number", {"number": {"type": "integer"}})
def double(number: int) -> str:
    return str(2 * number)


if __name__ == "__main__":
    server.run()
