"""Draw a terminal of 80 columns as SVG: `interlock setup`, a call that is denied, and its record.

Every line is what the commands really print, in a home folder made for it: a Cursor configuration with one server,
which is the file system server of tests/node. What differs from run to run (ids, times, folders) is replaced, so that
the picture changes only if the commands do.

    python scripts/recording.py docs/first-hour.svg
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples" / "demo"))
from screen import FRAME, VARYING  # noqa: E402  the tour's picture has the same frame

COLUMNS, ROWS = 80, 50
HOME = "/home/alice"
SERVER = ROOT / "tests" / "node" / "node_modules" / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
CONFIGURATION = """\
{
  "mcpServers": { "fs": {
    "command": "mcp-server-filesystem",
    "args": ["."]
  } }
}
"""
# The host, digests that a key of this state folder or the policy is part of, and how long a decision took.
MORE = (
    (re.compile(r"(?<=host           )\S+"), "laptop"),
    (re.compile(r"(?<=gate_ms        )[\d.]+"), "1.2"),
    (re.compile(r"(?<=\d\d:\d\d:\d\d)\.\d{3}(?= UTC)"), ".000"),
    (re.compile(r"(?<=policy_version )[0-9a-f]{64}"), "5e" * 32),
    (re.compile(r"(?<=arguments_hash )[0-9a-f]{64}"), "a1" * 32),
)


def make_home(home: Path) -> dict[str, str]:
    """Make a person's home folder with a client and a server in it; return its environment."""
    programs, project, cursor = home / ".local" / "bin", home / "project", home / ".cursor"
    for folder in (programs, project, cursor):
        folder.mkdir(parents=True)
    (cursor / "mcp.json").write_text(CONFIGURATION)
    for name, words in (
        ("interlock", [sys.executable, "-m", "proxy.cli"]),
        ("mcp-server-filesystem", ["node", SERVER]),
    ):
        script = programs / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
        script.chmod(0o755)
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ}
    return kept | {
        "HOME": str(home),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm-256color",
        "INTERLOCK_TRACE": "off",
    }


def run(command: str, home: Path, environ: dict[str, str]) -> str:
    """Run a command on a terminal; return what it wrote there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    with subprocess.Popen(
        ["sh", "-c", command], cwd=home / "project", env=environ, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        written = b""
        with suppress(OSError):  # the end of a terminal is an error
            while chunk := os.read(ours, 65536):
                written += chunk
        process.wait(60)
    os.close(ours)
    return written.decode().replace("\r\n", "\n").replace(str(home), HOME)


def stable(text: str) -> str:
    for pattern, instead in (*VARYING, *MORE):
        text = pattern.sub(instead, text)
    return text


def draw() -> str:
    """Run the commands, and return the picture."""
    console = Console(record=True, file=io.StringIO(), width=COLUMNS, force_terminal=True, color_system="truecolor")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve()
        environ = make_home(home)
        shown = ""
        for command in (
            "interlock setup --yes",
            "interlock call fs read_file path=/etc/shadow -- mcp-server-filesystem .",
            "interlock audit show {call}",
        ):
            said = re.findall(r"audit show ([0-9a-f-]{36})", shown)
            words = command.format(call=said[-1]) if "{call}" in command else command
            shown = run(words, home, environ)
            console.print(Text.assemble(("$ ", "dim"), (stable(words), "bold")))
            for line in shown.splitlines():
                console.print(Text.from_ansi(stable(line)))
            console.print()
    drawn = console.export_svg(title="interlock", code_format=FRAME, unique_id="first-hour")
    return "".join(f"{line.rstrip()}\n" for line in drawn.splitlines() if line.strip())


def main() -> None:
    (path,) = sys.argv[1:]
    Path(path).write_text(draw())


if __name__ == "__main__":
    main()
