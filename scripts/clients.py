"""Put real MCP clients behind Interlock with `interlock setup`, start them, and look in the audit trail.

Installs each client from npm into a temporary folder, with a home of its own, and runs the command of it that lists
its MCP servers. No model is asked, so no tool is called. Prints a table in Markdown; exits with 1 if a client that
starts servers did not start one through Interlock, or if undoing did not restore its file.

    python scripts/clients.py [--installed FOLDER] [CLIENT…]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SERVER = [sys.executable, "-I", str(ROOT / "tests" / "servers" / "formatter.py")]
SECONDS = 300


@dataclass(frozen=True)
class Trial:
    """How one client is tried. `starts` says whether listing starts the servers; `text` has SERVER's words in it."""

    client: str
    package: str
    program: str
    file: str
    text: str
    listing: tuple[str, ...]
    starts: bool = True


STDIO = json.dumps({"command": SERVER[0], "args": SERVER[1:]})
TRIALS = (
    Trial(
        *("claude-code", "@anthropic-ai/claude-code", "claude", ".claude.json"),
        f'{{"mcpServers": {{"demo": {STDIO}}}}}\n',
        ("mcp", "list"),
    ),
    Trial(
        *("gemini", "@google/gemini-cli", "gemini", ".gemini/settings.json"),
        f'{{"mcpServers": {{"demo": {STDIO}}}}}\n',
        ("mcp", "list"),
    ),
    Trial(
        *("codex", "@openai/codex", "codex", ".codex/config.toml"),
        f"[mcp_servers.demo] # mine\ncommand = {json.dumps(SERVER[0])}\nargs = {json.dumps(SERVER[1:])}\n",
        ("mcp", "list"),
        starts=False,
    ),
    Trial(
        *("opencode", "opencode-ai", "opencode", ".config/opencode/opencode.json"),
        json.dumps({"mcp": {"demo": {"type": "local", "command": SERVER}}}, indent=2),
        ("mcp", "list"),
    ),
)


def run(words: list[str], home: Path, *, quiet: bool = True) -> subprocess.CompletedProcess[str]:
    environ = {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "INTERLOCK_STATE_DIR": str(home / ".state"),
        "INTERLOCK_TRACE": "off",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",  # else it starts no server, nor asks whether it may
    }
    folder = home / "project"
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        words,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if not quiet and done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
    return done


def install(trial: Trial, folder: Path) -> Path:
    """Return the client's program, installed below `folder` if it is not there yet."""
    program = folder / trial.client / "node_modules" / ".bin" / trial.program
    if not program.exists():
        words = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder / trial.client), trial.package]
        subprocess.run(words, check=True, capture_output=True, timeout=SECONDS)
    return program


def seen(home: Path) -> list[str]:
    """Return the methods that the audit trail has of the server."""
    done = run([sys.executable, "-m", "proxy.cli", "audit", "export"], home)
    events = [json.loads(json.loads(line)["body"]) for line in done.stdout.splitlines()]
    own = [event for event in events if event.get("server") == "demo" and event.get("transport") == "stdio"]
    return sorted({event["method"] for event in own if event.get("kind") == "decided"})


def attempt(trial: Trial, program: Path, home: Path) -> tuple[str, bool]:
    """Return the client's row of the table, and whether it is as it should be."""
    file = home / trial.file
    file.parent.mkdir(parents=True, exist_ok=True)
    version = run([str(program), "--version"], home).stdout.strip().splitlines()[-1:]
    file.write_text(trial.text)
    interlock = [sys.executable, "-m", "proxy.cli", "setup", trial.client, "--yes"]
    run(interlock, home, quiet=False)
    wrapped = "--server-name" in file.read_text()
    written = file.read_text()
    listed = run([str(program), *trial.listing], home)
    shown = "demo" in listed.stdout + listed.stderr
    methods = seen(home)
    if trial.client == "claude-code":  # it writes its own state into this file: then only our change is taken out
        run([*interlock, "--undo"], home, quiet=False)
        restored = "--server-name" not in file.read_text()
    else:
        file.write_text(written)
        run([*interlock, "--undo"], home, quiet=False)
        restored = file.read_text() == trial.text
    through = ", ".join(f"`{method}`" for method in methods) or "not started by this command"
    undone = "yes" if restored else "NO"
    row = (
        f"| {trial.client} | {' '.join(version)} | `{trial.program} {' '.join(trial.listing)}` | {through} | {undone} |"
    )
    return row, wrapped and shown and restored and (bool(methods) or not trial.starts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--installed", type=Path, help="Keep the installed clients in this folder.")
    parser.add_argument("clients", nargs="*", help=f"Only these: {', '.join(trial.client for trial in TRIALS)}.")
    given = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.installed or Path(temporary) / "installed"
        print("| client | version | run | seen in the audit trail | undone |\n|---|---|---|---|---|")
        for trial in TRIALS:
            if given.clients and trial.client not in given.clients:
                continue
            home = Path(temporary) / trial.client
            home.mkdir()
            row, fine = attempt(trial, install(trial, folder), home)
            failed |= not fine
            print(row if fine else f"{row} FAILED", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
