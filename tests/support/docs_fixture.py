"""The world in which the shell blocks of the documentation run (tests/test_shell_blocks.py).

A home of its own with a state folder, a proxy that runs on it, and a trail with a denied call, a secret and proposals
that wait. What the pages name and nobody has stands for something that is there: PLACEHOLDERS. Programs that would
leave the machine, or run until they are stopped, have stand-ins: STAND_INS. Beside TOOLS nothing else is on the path.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.system.secret_files import write_private
from tests.support.harness import (
    REPOSITORY,
    Interlock,
    ServerHandle,
    environment,
    free_port,
    make_certificates,
    start_interlock,
    start_python_server,
)
from tests.support.postgres import Postgres
from tests.support.processes import module_command
from tests.support.stdio_harness import start_run

TOOLS = """
base64 basename bash cat chmod cp curl cut date dirname env false grep head id jq kill ls mkdir mktemp mv openssl
readlink rm sed seq setpriv sh sleep sort strace tail tee test timeout touch tr true unshare wc
"""
"""Programs of the system's own that blocks and interlock may use."""

SERVER = f"exec {sys.executable} -I {REPOSITORY}/tests/servers/formatter.py\n"
# The machine's own network is not for pages to change: there rules are checked, and links are only looked at.
ELSEWHERE = f'[ "$(readlink /proc/self/ns/net)" != "{Path("/proc/self/ns/net").readlink()}" ]'
STAND_INS = {
    "nft": f'{ELSEWHERE} && exec {shutil.which("nft")} "$@"\nexec {shutil.which("nft")} --check "$@"\n',
    "ip": f'{ELSEWHERE} && exec {shutil.which("ip")} "$@"\nexec {shutil.which("ip")} link show\n',
    # .ci/run and tests/test_examples.py make the real ones.
    "make": f'exec {shutil.which("make")} --dry-run -C {REPOSITORY} "$@"\n',
    "npx": SERVER,
    "uvx": SERVER,
    "node": "case $1 in server.js) " + SERVER.strip() + " ;; esac\n",
    "python": f'exec {sys.executable} "$@"\n',  # a link to it would not know its packages
    "claude": "exit 0\n",
    "ssh": "exec cat >/dev/null\n",
    **dict.fromkeys(("pass", "op", "aws"), "echo a-value-of-no-use\n"),
}
INTERLOCK = """\
real() {{ {command} "$@"; }}
# until_ready FILE WORD…: what runs until it is stopped is started for real, and stopped once FILE has something in it.
until_ready() {{
    file=$1
    shift
    {command} "$@" &
    for _ in $(seq 300); do [ -s "$file" ] && break; kill -0 $! || break; sleep 0.1; done
    [ -s "$file" ] && kill $!
    wait $! || [ $? = 143 ]
}}
case "$*" in
up*)
    shift
    state=$(mktemp -d)
    cp -r "{cache}" "$state/cache"
    set -- up "$@" --listen 127.0.0.1:0 --state-dir "$state" --log-level error --workers 1 --health-listen off
    until_ready "$state/run.json" "$@"
    ;;
"confine gateway"*)
    said=$(mktemp)
    until_ready "$said" "$@" --port {ports[0]} --resolver-port {ports[1]} >"$said"
    ;;
injector*)
    said=$(mktemp)
    until_ready "$said" "$@" --json --listen 127.0.0.1:0 >"$said"
    ;;
"notify test"*) {command} "$@" || [ $? = 1 ] ;;  # nobody takes what the page's targets are sent
"audit tail"*--follow* | "audit tail"*-f*) timeout --signal=INT 1 {command} "$@" || [ $? = 124 ] ;;
--install-completion) exec env PYTHONPATH={repository} {python} -m proxy.cli "$@" ;;  # asks its parent for its shell
"audit consume"*) ;;  # needs a NATS server: tests/commands/audit/test_consume.py has one
"audit prune"*) echo y | real "$@" ;;
restart*) real "$@" --state-dir "$(mktemp -d)" || [ $? = 1 ] ;;  # none runs there; later blocks need the world's own
stop*) real "$@" --state-dir "$(mktemp -d)" ;;  # the world's own is needed by later blocks
"call "*) real "$@" || case $? in 3 | 4) ;; *) exit 1 ;; esac ;;  # 3: refused, 4: the stand-in has no such tool
doctor*) real "$@" || [ $? = 1 ] ;;  # what it finds is the machine's
"policy abort"*) real "$@" || [ $? = 1 ] ;;  # the page has promoted the canary already
"probe"* | "policy replay"*) real "$@" || [ $? = 3 ] ;;  # 3: it ran, and found something
*) real "$@" ;;
esac
"""
BOOKS = ("agents.json", "operators.json", "keys/operator.token")
RULE = """\
  - id: large-sums-by-a-person
    description: A person decides
    action: two_phase
    approval: human
    tools: [transfer_funds]
"""
POLICY = (REPOSITORY / "policies" / "default.yaml").read_text().replace("rules:\n", f"rules:\n{RULE}", 1)
BANK = """\
import sys
sys.path.insert(0, "{servers}")
from tiny import Tiny
server = Tiny("bank")
@server.tool("Read a file.", {{"path": {{"type": "string"}}}}, {{"readOnlyHint": True}})
def read_file(path): return "token: ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
@server.tool("Move money.", {{"amount": {{"type": "number"}}}}, {{"destructiveHint": True}})
def transfer_funds(amount): return "moved"
server.run()
"""


@dataclass
class World:
    """Where blocks run, and what stands for what in them."""

    folder: Path
    proxy: Interlock
    server: ServerHandle
    postgres: Postgres
    env: dict[str, str]
    call_id: str = ""
    digest: str = ""
    amounts: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def filled(self, script: str) -> str:
        """Put in what stands for what a page names; proposals and databases are made for those who want one."""
        for name, stands in PLACEHOLDERS.items():
            if name in script:
                script = script.replace(name, stands(self))
        return script

    def propose(self) -> str:
        """Propose a transfer; return the id of the proposal that waits."""
        drafts = ["moved", "moved"]
        with self._session() as session:
            session.ask("tools/list", 1)
            answer = session.call(
                "transfer_funds_propose", 2, amount=next(self.amounts), _interlock={"candidate_outputs": drafts}
            )
        return str(answer["result"]["structuredContent"]["proposal_id"])

    def new_database(self) -> str:
        """Return the URL of an empty database."""
        return self.postgres.new_database(migrated=False)

    def populate(self) -> None:
        """Make a trail: a call denied, a secret masked, tools pinned; and copies of what proves it."""
        with self._session() as session:
            session.ask("initialize", 0, protocolVersion="2025-06-18", capabilities={}, clientInfo={})
            session.ask("tools/list", 1)
            denied = session.call("read_file", 2, path="/etc/passwd")
            session.call("read_file", 3, path="notes.txt")
        self.call_id = denied["result"]["_meta"]["mcp-interlock/denial"]["audit_id"]
        pins = [json.loads(line) for line in self.proxy.cli("pins", "list", "--json").stdout.splitlines()]
        self.digest = next(str(pin["digest"]) for pin in pins if pin["tool"] == "read_file")
        token = re.search(r"ilk_\S+", self.proxy.cli("agents", "add", "build-bot").stdout)
        assert token
        (self.folder / "home" / ".build-bot.token").write_text(token[0])
        assert self.proxy.cli("operators", "add", "bob").returncode == 0
        for book in BOOKS:
            shutil.copy(self.proxy.state_dir / book, self.folder / Path(book).name)
        shutil.copytree(self.proxy.state_dir / "pins", self.folder / "pins")
        vault = self.folder / "vault"
        vault.mkdir()
        exported = self.proxy.cli("audit", "export", "--output", str(vault / "trail.jsonl"))
        assert exported.returncode == 0, exported.stderr
        shutil.copy(self.proxy.state_dir / "checkpoints" / "checkpoints.jsonl", vault / "interlock.jsonl")
        (public,) = (self.proxy.state_dir / "keys" / "audit-public").iterdir()
        shutil.copy(public, vault / "key.pem")

    @contextmanager
    def _session(self) -> Iterator[Any]:
        bank = self.folder / "bank.py"
        bank.write_text(BANK.format(servers=REPOSITORY / "tests" / "servers"))
        command, flags = [sys.executable, "-I", str(bank)], ("--server-name", "mcp.example.com", "--trace", "off")
        folder, state = self.folder / "session", self.proxy.state_dir
        with start_run(folder, command, *flags, policy=POLICY, state_dir=state) as session:
            yield session
            assert session.end() == 0, session.errors()

    def new_folder(self, name: str) -> Path:
        """Make a folder for a page: a checkout as far as blocks look at it, and the files that they name.

        Agents, operators and pins are again what they were before the last page.
        """
        shutil.copytree(self.folder / "pins", self.proxy.state_dir / "pins", dirs_exist_ok=True)
        for book in BOOKS:
            shutil.copy(self.folder / Path(book).name, self.proxy.state_dir / book)
        if (vault := self.proxy.state_dir / "vault.json").exists():
            write_private(vault, b"{}")  # one that is gone would be an error
        folder = self.folder / "pages" / name
        (folder / ".venv" / "bin").mkdir(parents=True)
        (folder / ".venv" / "bin" / "interlock").symlink_to(self.folder / "bin" / "interlock")
        (folder / ".venv" / "bin" / "python").symlink_to(self.folder / "bin" / "python")
        (folder / "examples").symlink_to(REPOSITORY / "examples")
        (folder / "deploy").symlink_to(REPOSITORY / "deploy")
        shutil.copytree(REPOSITORY / "policies", folder / "policies")
        shutil.copy(REPOSITORY / "policies" / "default.yaml", folder / "new.yaml")
        shutil.copy(self.folder / "certificates" / "ca.pem", folder / "corp.pem")
        shutil.copy(self.folder / "certificates" / "leaf.pem", folder / "tls.crt")
        shutil.copy(self.folder / "certificates" / "leaf.key", folder / "tls.key")
        (folder / "injection.yaml").write_text("initContainers: [{name: interlock, image: 'interlock:0.1.0'}]\n")
        for name_there, source in {
            "trail.jsonl": "trail.jsonl",
            "vault.jsonl": "interlock.jsonl",
            "vault.pem": "key.pem",
        }.items():
            shutil.copy(self.folder / "vault" / source, folder / name_there)
        (folder / "prompts").mkdir()
        (folder / "prompts" / "payments.txt").write_text("Pay the invoices.\n")
        (folder / "agent.py").write_text("")
        (folder / "notify.yaml").write_text("pager: {kind: webhook, url: 'http://127.0.0.1:1/'}\n")
        (folder / ".vscode").mkdir()
        servers = {"files": {"command": "npx", "args": ["-y", "some-server"]}}
        (folder / ".vscode" / "mcp.json").write_text(json.dumps({"servers": servers}))
        return folder


PLACEHOLDERS: dict[str, Callable[[World], str]] = {
    "0198c0de-7d31-7c52-a1b0-5e0d9f1c2a44": lambda world: world.call_id,
    "0198c0de-7d31": lambda world: world.call_id,
    "01989f2e-7a31": lambda world: world.propose(),
    "01989f5c-04b2": lambda world: world.propose(),
    "3f9a2c77": lambda world: world.digest,
    "127.0.0.1:8080": lambda world: str(world.proxy.run["listen"]),
    "127.0.0.1:8081": lambda world: str(world.proxy.run["health"]),
    "http://127.0.0.1:3000/mcp": lambda world: f"{world.server.url}/mcp",
    "https://mcp.example.com/mcp": lambda world: f"{world.server.url}/mcp",
    "postgresql://interlock:PASSWORD@db.example.com/interlock?sslmode=verify-full": lambda world: world.new_database(),
    "postgresql://interlock@db.example.com/interlock": lambda world: world.new_database(),
    "/usr/share/": lambda world: f"{world.folder}/share/",
    "/run/secrets/token": lambda world: f"{world.folder}/home/.build-bot.token",
    "/vault/": lambda world: f"{world.folder}/vault/",
    "/srv/interlock-ca": lambda world: f"{world.proxy.state_dir}/ca",
}


@contextmanager
def start_world(folder: Path, postgres: Postgres) -> Iterator[World]:
    """Run the world until the block ends."""
    home = folder / "home"
    own = {"HOME": home, "PATH": folder / "bin", "XDG_STATE_HOME": folder, "SSH_AUTH_SOCK": home / "agent.sock"}
    env = environment({name: str(path) for name, path in own.items()} | {"API_KEY": "anything"})
    (home / ".cursor").mkdir(parents=True)
    config = {"mcpServers": {"files": {"command": "npx", "args": ["-y", "some-server"]}}}
    (home / ".cursor" / "mcp.json").write_text(json.dumps(config))
    (home / ".claude.json").write_text(json.dumps(config))
    (folder / "interlock").symlink_to(folder / "proxy" / "state")
    make_certificates(folder / "certificates")
    for place in ("bash-completion/completions", "zsh/site-functions", "fish/vendor_completions.d"):
        (folder / "share" / place).mkdir(parents=True)
    with ExitStack() as stack:
        agent = stack.enter_context(socket.socket(socket.AF_UNIX))
        agent.bind(env["SSH_AUTH_SOCK"])
        agent.listen()
        server = stack.enter_context(start_python_server("python_modern", folder))
        proxy = stack.enter_context(start_interlock(folder / "proxy", policy=POLICY, env={"HOME": str(home)}))
        world = World(folder, proxy, server, postgres, env)
        _fill_path(folder, env, proxy.state_dir)
        world.populate()
        yield world


def _fill_path(folder: Path, env: dict[str, str], state_dir: Path) -> None:
    path = folder / "bin"
    path.mkdir()
    for tool in TOOLS.split():
        if found := shutil.which(tool):
            (path / tool).symlink_to(found)
    command = " ".join(module_command("proxy.cli", env=env))
    script = INTERLOCK.format(
        command=command,
        cache=state_dir / "cache",
        repository=REPOSITORY,
        python=sys.executable,
        ports=(free_port(), free_port()),
    )
    for name, text in {**STAND_INS, "interlock": script}.items():
        # "x": a name that is among TOOLS, too, would be written through the link, over the machine's own program.
        with (path / name).open("x") as file:
            file.write(f"#!/bin/sh\n{text}")
        (path / name).chmod(0o755)
