"""Hooks in clients' settings."""

from __future__ import annotations

import json
import subprocess

import pytest

from proxy.agent import config_json
from proxy.agent.client_hooks import commands, install, remove
from proxy.agent.clients import CLAUDE_HOOK, CURSOR_HOOK
from proxy.errors import ConfigError

NAME = ["/opt/my tools/interlock"]
COMMAND = "'/opt/my tools/interlock' policy decide --stdin --format claude-code || exit 2"
OURS = {"matcher": "*", "hooks": [{"type": "command", "command": COMMAND, "timeout": 60, "onFailure": "block"}]}
THEIRS = {"matcher": "Bash", "hooks": [{"type": "command", "command": "mine"}]}


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("{}", [OURS]),
        ("{}\n", [OURS]),
        ('{"model": "x"}', [OURS]),
        ('{\n  // mine\n  "model": "x",\n}\n', [OURS]),
        ('{\n\t"hooks": {}\n}', [OURS]),
        ('{\r\n  "hooks": {\r\n    "Stop": []\r\n  }\r\n}\r\n', [OURS]),
        ('{"hooks": {"PreToolUse": []}}', [OURS]),
        ('{\n  "hooks": {\n    "PreToolUse": [ // none\n    ],\n  },\n}', [OURS]),
        (json.dumps({"hooks": {"PreToolUse": [THEIRS]}}), [THEIRS, OURS]),
        (json.dumps({"a": 1, "hooks": {"PreToolUse": [THEIRS], "Stop": []}}, indent=4), [THEIRS, OURS]),
    ],
)
def test_the_hook_is_added_and_all_else_stays(text: str, listed: list[object]) -> None:
    done = install(text, NAME, CLAUDE_HOOK)
    assert done.changed == ("PreToolUse hook",)
    value = json.loads(config_json.parse(done.text).plain)
    assert value["hooks"]["PreToolUse"] == listed
    assert ("// mine" in done.text, "// none" in done.text) == ("// mine" in text, "// none" in text)
    assert commands(done.text, CLAUDE_HOOK) == [NAME]
    again = install(done.text, ["interlock"], CLAUDE_HOOK)
    assert (again.text, again.changed) == (done.text, ())
    gone = remove(done.text, CLAUDE_HOOK)
    assert gone.changed == ("PreToolUse hook",)
    assert commands(gone.text, CLAUDE_HOOK) == []
    assert ("mine" in gone.text) == ("mine" in text)
    assert remove(gone.text, CLAUDE_HOOK).changed == ()


def test_of_several_hooks_only_ours_is_removed() -> None:
    text = json.dumps({"hooks": {"PreToolUse": [OURS, THEIRS, OURS]}})
    assert json.loads(remove(text, CLAUDE_HOOK).text) == {"hooks": {"PreToolUse": [THEIRS]}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"hooks": []}', "not an object"),
        ('{"hooks": 1}', "neither"),
        ('{"hooks": {"PreToolUse": {}}}', "not a list"),
        ('{"hooks": {}, "hooks": {}}', "occurs twice"),
        ("[]", "not an object"),
        ("{", "not JSON"),
    ],
)
def test_settings_that_are_not_as_documented_are_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        install(text, NAME, CLAUDE_HOOK)


def test_cursor_has_a_hook_for_each_of_its_events() -> None:
    done = install(CURSOR_HOOK.base, ["/bin/interlock"], CURSOR_HOOK)
    value = json.loads(done.text)
    entry = {"command": "/bin/interlock policy decide --stdin --format cursor || exit 2", "failClosed": True}
    assert value["version"] == 1
    assert value["hooks"] == {
        "beforeShellExecution": [entry],
        "beforeReadFile": [entry],
        "beforeMCPExecution": [entry],
    }
    assert json.loads(remove(done.text, CURSOR_HOOK).text)["hooks"]["beforeReadFile"] == []


@pytest.mark.parametrize("interlock", [["/nowhere/interlock"], ["/bin/false"], ["/bin/sh", "-c", "kill -9 $$"]])
def test_a_hook_whose_program_fails_blocks(interlock: list[str]) -> None:
    # Both clients let a call through if its hook exits with anything but 0 or 2.
    value = json.loads(install("{}", interlock, CLAUDE_HOOK).text)
    command = value["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    assert subprocess.run(["/bin/sh", "-c", command], check=False, capture_output=True).returncode == 2
