"""Every command takes `--json`; what it prints is then one JSON object a line, and an error is one on stderr."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_tree import commands, options
from tests.support.harness import Interlock, interlock_cli, start_interlock
from tests.support.harness import environment as bare_environment
from tests.support.processes import run_module

FORMATTER = str(Path(__file__).parents[1] / "servers" / "formatter.py")
CALL = '{"tool": "read_file", "arguments": {"path": "/etc/passwd"}}'
ID = "01989f2e-7a31"

# What each command is called with here, in this order: later ones find what earlier ones made. `{call}` is the id of a
# call that was made, `{policy}` a policy file, `{folder}` an empty folder.
RUN = {
    "interlock call": ["demo", "format_note", "title=a", "body=b", "--", sys.executable, FORMATTER],
    "interlock status": [],
    "interlock doctor": [],
    "interlock env": [],
    "interlock exec": ["--", "true"],
    "interlock policy check": ["{policy}"],
    "interlock policy test": ["{policy}"],
    "interlock policy explain": ["{policy}", "--call", CALL],
    "interlock policy schema": [],
    "interlock policy learn": [],
    "interlock policy replay": ["{policy}"],
    "interlock policy show": ["{policy}"],
    "interlock policy diff": ["{policy}", "strict"],
    "interlock policy key": [],
    "interlock policy push": ["{policy}", "--force"],
    "interlock policy history": [],
    "interlock policy rollback": ["1"],
    "interlock sandbox show": ["node"],
    "interlock sandbox diff": ["base", "node"],
    "interlock flows show": [],
    "interlock flows clear": ["agent", "--reason", "done"],
    "interlock limits show": [],
    "interlock halt": ["--agent", "nobody", "--reason", "trial"],
    "interlock halts": [],
    "interlock resume": ["--all", "--reason", "over"],
    "interlock pins list": [],
    "interlock pins show": ["demo", "format_note"],
    "interlock pins approve": ["demo", "format_note"],
    "interlock pins forget": ["demo"],
    "interlock audit query": [],
    "interlock audit show": ["{call}"],
    "interlock audit stats": [],
    "interlock audit tail": [],
    "interlock audit export": [],
    "interlock audit verify": [],
    "interlock audit receipt": ["{call}"],
    "interlock audit schema": [],
    "interlock audit archive": ["--to", "{folder}"],
    "interlock audit prune": ["--before", "90d", "--yes"],
    "interlock audit rotate-key": [],
    "interlock console": [],
    "interlock proposals list": [],
    "interlock policy proposals list": [],
    "interlock proposals standing": [],
    "interlock baselines set": ["pay", "--prompt", "Pay alice."],
    "interlock baselines list": [],
    "interlock baselines remove": ["pay"],
    "interlock operators add": ["bob"],
    "interlock operators list": [],
    "interlock operators change": ["bob", "--role", "viewer"],
    "interlock operators revoke": ["bob"],
    "interlock agents add": ["bot"],
    "interlock agents list": [],
    "interlock agents revoke": ["bot"],
    "interlock vault add": ["gh", "--file", "{policy}", "--key", "version"],
    "interlock vault list": [],
    "interlock vault show": ["gh"],
    "interlock vault bind": ["gh", "--host", "api.github.com", "--env", "PATH"],
    "interlock vault placeholder": ["gh"],
    "interlock vault test": [],
    "interlock vault revoke": ["gh"],
    "interlock keys list": [],
    "interlock keys rotate": [],
    "interlock config show": [],
    "interlock ca show": [],
    "interlock ca export": [],
    "interlock db status": [],
    "interlock db migrate": [],
    "interlock confine rules": [],
    "interlock setup": ["--dry-run"],
    "interlock wrap": ["{client}", "--dry-run"],
    "interlock man": [],
    "interlock stop": [],
}
# These fail here, or are told to: the error is the JSON object. The exit code is the one without --json.
FAIL = {
    "interlock proposals show": ([ID], 1),
    "interlock proposals approve": ([ID], 1),
    "interlock proposals reject": ([ID, "--reason", "no"], 1),
    "interlock proposals revoke": ([ID], 1),
    "interlock policy proposals show": ([ID], 1),
    "interlock policy proposals accept": ([ID], 1),
    "interlock policy proposals reject": ([ID, "--reason", "no"], 1),
    "interlock notify test": ([], 1),
    "interlock policy decide": ([], 2),
    "interlock policy promote": ([], 1),
    "interlock policy abort": ([], 1),
    "interlock probe": (["--", "/nothing/there"], 1),
    "interlock sandbox learn": (["--", "/nothing/there"], 1),
    "interlock audit consume": (["--to", "store"], 1),
    "interlock fleet init": ([], 1),
    "interlock fleet status": ([], 1),
    "interlock fleet forget": ([ID], 1),
    "interlock fleet rekey": (["--new-key", "env:NO_KEY"], 1),
    "interlock join": ([], 1),
    "interlock restart": (["--state-dir", "{folder}"], 1),
    "interlock up": (["--policy", "/nothing/there"], 1),
    "interlock run": (["--", "/nothing/there"], 127),
    "interlock injector": (["--template", "/no/there", "--certificate", "/no/there", "--key", "/no/there"], 1),
    "interlock confine run": (["--state-dir", "{folder}", "--", "true"], 125),
    "interlock confine gateway": (["--state-dir", "{folder}"], 1),
}
EXIT_CODES = {
    "interlock doctor": (0, 1),
    "interlock policy replay": (0, 3),
    "interlock policy diff": (0, 3),
    "interlock audit verify": (0, 3),
}


@pytest.mark.parametrize("name", commands())
def test_every_command_takes_it_and_is_tried_here(name: str) -> None:
    assert "--json" in options(name)
    assert (name in RUN) != (name in FAIL)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    with start_interlock(tmp_path_factory.mktemp("json")) as interlock:
        yield interlock
        interlock.stopped = interlock.process.poll() is not None


@pytest.fixture(scope="module")
def here(proxy: Interlock) -> dict[str, str]:
    """What stands in the command lines for what only exists here."""
    folder = proxy.state_dir.parent
    (folder / "empty").mkdir()
    client = folder / "mcp.json"
    client.write_text('{"mcpServers": {"demo": {"command": "true"}}}')
    return {"policy": str(folder / "policy.yaml"), "folder": str(folder / "empty"), "client": str(client)}


def run(proxy: Interlock, words: list[str], here: dict[str, str]) -> subprocess.CompletedProcess[str]:
    given = [here.get(word[1:-1], word) if word.startswith("{") and word.endswith("}") else word for word in words]
    at = given.index("--") if "--" in given else len(given)
    given[at:at] = ["--json"]
    home = {"HOME": here["folder"], "INTERLOCK_STATE_DIR": str(proxy.state_dir), "INTERLOCK_TRACE": "off"}
    return run_module("proxy.cli", *given, env=bare_environment(home))


def test_whatever_a_command_prints_is_json(proxy: Interlock, here: dict[str, str]) -> None:
    wrong = {}
    for name, words in RUN.items():
        done = run(proxy, [*name.split()[1:], *words], here)
        lines = (done.stdout or done.stderr if name == "interlock exec" else done.stdout).splitlines()
        try:
            found: list[Any] = [json.loads(line) for line in lines]
        except ValueError:
            found = []
        if name == "interlock call" and found:
            here["call"] = found[0]["call_id"]
        fine = all(isinstance(each, dict) for each in found) and (found or name in EMPTY)
        said = done.stderr if name not in TALKS else ""
        if not fine or said or done.returncode not in EXIT_CODES.get(name, (0,)):
            wrong[name] = done
    assert not wrong


# Nothing was proposed, and no client is installed: there is nothing to list.
EMPTY = {
    *("interlock policy proposals list", "interlock proposals list", "interlock proposals standing"),
    *("interlock policy replay", "interlock setup"),
    *("interlock flows show", "interlock limits show"),
}
TALKS = {"interlock exec"}


@pytest.mark.parametrize("name", FAIL)
def test_an_error_is_one_json_object_on_stderr_and_the_exit_code_stays(
    name: str, proxy: Interlock, here: dict[str, str]
) -> None:
    words, code = FAIL[name]
    done = run(proxy, [*name.split()[1:], *words], here)
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = done.stderr.splitlines()
    error = json.loads(line)
    assert set(error) == {"error", "hint"}
    assert error["error"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["fly", "--json"], 2),
        (["audit", "tail", "--fly", "--json"], 2),
        (["audit", "show", "--json"], 2),
        (["audit", "tail", "-n", "many", "--json"], 2),
        (["audit", "tail", "--json", "--state-dir", "/nothing/there"], 1),
        (["policy", "explain", "/nothing.yaml", "--call", "{}", "--json"], 1),
        (["ca", "export", "/nothing/there/ca.pem", "--json"], 1),
    ],
)
def test_wrong_usage_is_json_too(words: list[str], code: int, tmp_path: Path) -> None:
    done = interlock_cli(*words, env={"INTERLOCK_STATE_DIR": str(tmp_path)})
    assert (done.returncode, done.stdout) == (code, "")
    assert set(json.loads(done.stderr)) == {"error", "hint"}


def test_a_commands_own_words_are_its_own(tmp_path: Path) -> None:
    done = interlock_cli("exec", "--state-dir", str(tmp_path), "--", "true", "--json")
    assert done.returncode == 125
    assert done.stderr.startswith("interlock exec: no proxy runs")
