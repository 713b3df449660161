"""Put real MCP clients behind Interlock with `interlock setup`, start them, and look in the audit trail.

Installs each client from npm into a temporary folder, with a home of its own. Runs the command of it that lists its MCP
servers, and then asks it something: a stand-in for its model (scripts/stand_in_model.py) calls a tool that the policy
denies. Prints a table in Markdown; exits with 1 if a client did not call its server through Interlock, if the
model was not told of the denial, or if undoing did not restore the client's file.

    python scripts/clients.py [--installed FOLDER] [CLIENT…]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from stand_in_model import ARGUMENTS, TOOL, StandInModel

ROOT = Path(__file__).resolve().parent.parent
SERVER = [sys.executable, "-I", str(ROOT / "tests" / "servers" / "files.py")]
SECONDS = 300
REFUSED = "Refused by Interlock (policy_denied)"
ANSI = re.compile(r"\x1b\[[0-9;]*m")
POLICY = f"""\
version: 1
default: allow
rules:
  - id: no-plans
    description: Plans are not for this tool.
    action: deny
    tools: [{TOOL}]
    when: {{all: [{{arg: text, equals: {ARGUMENTS["text"]}}}]}}
"""


@dataclass(frozen=True)
class Trial:
    """How one client is tried. `text` is its configuration, with SERVER's words in it.

    MODEL in `text` and `environ` stands for the model's URL. `asking` are the words that make the client ask it, and
    `shows` finds in its output how the denial looks.
    """

    client: str
    package: str
    program: str
    file: str
    text: str
    listing: tuple[str, ...]
    asking: tuple[str, ...]
    shows: str
    environ: dict[str, str] = field(default_factory=dict)


STDIO = json.dumps({"command": SERVER[0], "args": SERVER[1:]})
CODEX = f"""\
model = "stand-in"
model_provider = "local"
[model_providers.local]
name = "local"
base_url = "MODEL/v1"
env_key = "LOCAL_KEY"
[mcp_servers.demo] # mine
command = {json.dumps(SERVER[0])}
args = {json.dumps(SERVER[1:])}
required = true
"""
OPENCODE = {
    "model": "local/stand-in",
    "small_model": "local/stand-in",
    "provider": {
        "local": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "MODEL/v1", "apiKey": "x"},
            "models": {"stand-in": {"name": "stand-in"}},
        }
    },
    "mcp": {"demo": {"type": "local", "command": SERVER}},
}
GEMINI = f'{{"security": {{"auth": {{"selectedType": "gemini-api-key"}}}}, "mcpServers": {{"demo": {STDIO}}}}}\n'
STREAMED = ("--output-format", "stream-json")
TRIALS = (
    Trial(
        *("claude-code", "@anthropic-ai/claude-code", "claude", ".claude.json"),
        f'{{"mcpServers": {{"demo": {STDIO}}}}}\n',
        ("mcp", "list"),
        ("-p", "Echo.", "--allowedTools", f"mcp__demo__{TOOL}", *STREAMED, "--verbose"),
        rf'"type":"tool_result","content":"({re.escape(REFUSED)}[^"]*)',
        {
            "ANTHROPIC_BASE_URL": "MODEL",
            "ANTHROPIC_API_KEY": "x",
            "ENABLE_TOOL_SEARCH": "false",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
    ),
    Trial(
        *("gemini", "@google/gemini-cli", "gemini", ".gemini/settings.json"),
        GEMINI,
        ("mcp", "list"),
        ("--yolo", "-m", "gemini-2.5-flash", "-p", "Echo."),
        r"(Error executing tool [^\n]*)",
        {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": "MODEL"},
    ),
    Trial(
        *("codex", "@openai/codex", "codex", ".codex/config.toml"),
        CODEX,
        ("mcp", "list"),
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Echo."),
        rf"(mcp: demo/{TOOL} \(failed\))",
        {"LOCAL_KEY": "x"},
    ),
    Trial(
        *("opencode", "opencode-ai", "opencode", ".config/opencode/opencode.json"),
        json.dumps(OPENCODE, indent=2),
        ("mcp", "list"),
        ("run", "Echo."),
        rf"(Error: {re.escape(REFUSED)}[^\n]*)",
    ),
)


def run(
    words: list[str], home: Path, environ: dict[str, str] | None = None, *, quiet: bool = True
) -> subprocess.CompletedProcess[str]:
    variables = {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GEMINI_CLI_TRUST_WORKSPACE": "true",  # else it starts no server, nor asks whether it may
    }
    folder = home / "project"
    folder.mkdir(exist_ok=True)
    # Not by variables: Codex starts its servers with few of them.
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "interlock.yaml").write_text(f"state_dir: {home}/.state\npolicy: {folder}/policy.yaml\ntrace: 'off'\n")
    done = subprocess.run(
        words,
        cwd=folder,
        env=variables | (environ or {}),
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


def ask(trial: Trial, program: Path, home: Path, model: StandInModel) -> tuple[str, bool]:
    """Let the client call the tool; return how the denial looks there, and whether the model was told of it."""
    environ = {name: value.replace("MODEL", model.url) for name, value in trial.environ.items()}
    before = len(model.told)
    asked = run([str(program), *trial.asking], home, environ)
    found = re.search(trial.shows, ANSI.sub("", asked.stdout + asked.stderr))
    told = any(REFUSED in each for each in model.told[before:])
    if found is None or not told:
        sys.stderr.write(asked.stdout + asked.stderr)
    # What follows is the same for all of them.
    return (found[1].partition(" Rule ")[0] if found else "nothing"), found is not None and told


def attempt(trial: Trial, program: Path, home: Path, model: StandInModel) -> tuple[str, bool]:
    """Return the client's row of the table, and whether it is as it should be."""
    file, text = home / trial.file, trial.text.replace("MODEL", model.url)
    file.parent.mkdir(parents=True, exist_ok=True)
    version = run([str(program), "--version"], home).stdout.strip().splitlines()[-1:]
    file.write_text(text)
    interlock = [sys.executable, "-m", "proxy.cli", "setup", trial.client, "--yes"]
    run(interlock, home, quiet=False)
    written = file.read_text()
    listed = run([str(program), *trial.listing], home)
    shown = "demo" in listed.stdout + listed.stderr
    looks, told = ask(trial, program, home, model)
    methods = seen(home)
    restored = undo(trial, interlock, home, text, written)
    through = ", ".join(f"`{method}`" for method in methods)
    row = [trial.client, " ".join(version), through, f"`{looks}`", "yes" if restored else "NO"]
    fine = "--server-name" in written and shown and told and restored and "tools/call" in methods
    return f"| {' | '.join(row)} |", fine


def undo(trial: Trial, interlock: list[str], home: Path, text: str, written: str) -> bool:
    """Take Interlock out again; return whether the client's file is as it was."""
    file = home / trial.file
    if trial.client == "claude-code":  # it writes its own state into this file: then only our change is taken out
        run([*interlock, "--undo"], home, quiet=False)
        return "--server-name" not in file.read_text()
    file.write_text(written)
    run([*interlock, "--undo"], home, quiet=False)
    return file.read_text() == text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--installed", type=Path, help="Keep the installed clients in this folder.")
    parser.add_argument("clients", nargs="*", help=f"Only these: {', '.join(trial.client for trial in TRIALS)}.")
    given = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as temporary, StandInModel() as model:
        folder = given.installed or Path(temporary) / "installed"
        print("| client | version | seen in the audit trail | how a denial looks there | undone |")
        print("|---|---|---|---|---|")
        for trial in TRIALS:
            if given.clients and trial.client not in given.clients:
                continue
            home = Path(temporary) / trial.client
            home.mkdir()
            row, fine = attempt(trial, install(trial, folder), home, model)
            failed |= not fine
            print(row if fine else f"{row} FAILED", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
