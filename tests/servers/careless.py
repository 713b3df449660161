"""A stdio server whose tools do what whoever writes an argument wants. The standard library alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from tiny import Tiny

server = Tiny("careless")
TEXT = {"type": "string"}


@server.tool("Finds a word in the notes, by the program true", {"text": TEXT})
def find(text: str) -> str:
    """Put an argument into a shell's line."""
    done = subprocess.run(f"true {text}", shell=True, capture_output=True, check=False)
    return f"exit code {done.returncode}"


@server.tool("Shows one of the notes", {"title": TEXT})
def show_note(title: str) -> str:
    """Take an argument for a file's name, and for a format."""
    note = Path.home() / "documents" / title
    text = note.read_text() if note.is_file() else ""
    return title.format("x") + text[:0]


@server.tool("Says it again", {"text": TEXT})
def say(text: str) -> str:
    return text


if __name__ == "__main__":
    server.run()
