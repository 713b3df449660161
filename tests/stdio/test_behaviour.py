"""Rules on what a local server is observed to do, behind `interlock run` and real strace."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stdio.test_runner import INITIALIZE
from tests.support.stdio_harness import Run, start_run
from tests.support.timeouts import PATIENCE

# A server whose one tool runs what it is given, and answers with what that said.
OBEDIENT = """
import ctypes, json, os, socket, subprocess, sys, threading
def write(value):
    print(json.dumps({"jsonrpc": "2.0", **value}), flush=True)
kept = {}
for line in sys.stdin:
    message = json.loads(line)
    said = []
    answered = []
    def answer():
        answered.append(1)
        content = [{"type": "text", "text": str(each)} for each in said]
        write({"id": message["id"], "result": {"content": content}})
    if message.get("method") == "tools/call":
        exec(message["params"]["arguments"]["code"])
    if "id" in message and not answered:
        answer()
"""
POLICY = """
version: 1
default: allow
rules:
  - id: no-keys
    description: Keys stay where they are
    on: observed
    action: withhold
    acts: [fs.read]
    when: {{arg: path, path_under: ["{secrets}"]}}
  - id: no-deleting
    on: observed
    action: withhold
    acts: [unlink]
    tools: [careful]
  - id: no-shell
    on: observed
    action: withhold
    acts: [exec]
    when: {{arg: command, command: [uname, whoami]}}
  - id: told
    on: observed
    action: tell
    acts: [connect]
    when: {{arg: host, host_in: ["127.0.0.9"]}}
  - id: shadowed
    on: observed
    mode: shadow
    action: deny
    acts: [fs.write]
    when: {{arg: path, matches: 'shadowed$'}}
  - id: ends
    on: observed
    action: deny
    acts: [connect]
    when: {{arg: host, host_in: ["127.0.0.66"]}}
"""
NAMED = ("--trace", "require", "--server-name", "obedient")


class World:
    """A running server, its files, and numbers for calls."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run, self.folder = run, folder
        self.key = folder / "secrets" / "key"
        self._number = 0

    def do(self, code: str, tool: str = "run") -> dict[str, Any]:
        """Run code in a call; return the result."""
        self._number += 1
        result: dict[str, Any] = self.run.call(tool, self._number, code=code)["result"]
        return result

    def said(self, result: dict[str, Any]) -> list[str]:
        return [each["text"] for each in result["content"]]


def reason(result: dict[str, Any]) -> tuple[str | None, str | None]:
    denial = result.get("_meta", {}).get("mcp-interlock/denial", {})
    return denial.get("reason"), denial.get("rule")


@contextlib.contextmanager
def started(folder: Path, *flags: str, policy: str = POLICY) -> Iterator[World]:
    secrets = folder / "secrets"
    secrets.mkdir()
    (secrets / "key").write_text("the-key")
    (folder / "plain").write_text("plain-text")
    command = [sys.executable, "-I", "-S", "-c", OBEDIENT]
    written = policy.format(secrets=secrets)
    with start_run(
        folder / "run", command, *(flags or ("--trace", "require")), "--server-name", "obedient", policy=written
    ) as run:
        run.ask("initialize", 0, **INITIALIZE)
        yield World(run, folder)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with started(tmp_path_factory.mktemp("behaviour")) as made:
        yield made


WAYS_TO_READ = {
    "plainly": "said.append(open({key!r}).read())",
    "through a link": "os.symlink({key!r}, {key!r} + '-l'); said.append(open({key!r} + '-l').read())",
    "from its folder": "os.chdir(os.path.dirname({key!r})); said.append(open('key').read()); os.chdir('/')",
    "by a folder's descriptor": (
        "d = os.open(os.path.dirname({key!r}), os.O_PATH); f = os.open('key', os.O_RDONLY, dir_fd=d); "
        "said.append(os.read(f, 99).decode()); os.close(f); os.close(d)"
    ),
    "by a child": "said.append(subprocess.run(['cat', {key!r}], capture_output=True, text=True).stdout)",
    "by a grandchild": "said.append(subprocess.run(['sh', '-c', 'cat {key} & wait'], capture_output=True).stdout)",
    "in a thread": "t = threading.Thread(target=lambda: said.append(open({key!r}).read())); t.start(); t.join()",
    "by a forked process": (
        "r, w = os.pipe(); p = os.fork()\n"
        "if not p:\n  os.write(w, open({key!r}, 'rb').read()); os._exit(0)\n"
        "os.waitpid(p, 0); said.append(os.read(r, 99).decode())"
    ),
    "between two parts of the answer": (
        'os.write(1, b\'{{"jsonrpc":"2.0","id":%d,\' % message[\'id\'])\n'
        'os.write(1, b\'"result":{{"content":[{{"type":"text","text":"\' + open({key!r}, \'rb\').read() + '
        "b'\"}}]}}}}\\n'); answered.append(1)"
    ),
    "with an answer by a child": (
        'text = \'{{"jsonrpc":"2.0","id":%d,"result":{{"content":[]}}}}\' % message[\'id\']\n'
        "subprocess.run(['sh', '-c', 'cat {key} >/dev/null; printf \"%s\\\\n\" \"$0\"', text]); answered.append(1)"
    ),
    "with an answer by splice": (
        "data = json.dumps({{'jsonrpc': '2.0', 'id': message['id'], 'result': {{'content': "
        "[{{'type': 'text', 'text': open({key!r}).read()}}]}}}}).encode() + b'\\n'\n"
        "r, w = os.pipe(); os.write(w, data); os.splice(r, 1, len(data)); answered.append(1)"
    ),
}


@pytest.mark.parametrize("way", WAYS_TO_READ)
def test_an_answer_is_withheld_whichever_way_the_file_was_read(world: World, way: str) -> None:
    result = world.do(WAYS_TO_READ[way].format(key=str(world.key)))
    assert reason(result) == ("observed_behaviour", "no-keys")
    assert "the-key" not in str(result)
    assert "Keys stay where they are" in str(result)


def test_what_no_rule_is_about_passes(world: World) -> None:
    result = world.do(f"said.append(open({str(world.folder / 'plain')!r}).read())")
    assert world.said(result) == ["plain-text"]


def test_a_file_that_is_not_there_was_not_read(world: World) -> None:
    missing = str(world.key.with_name("missing"))
    assert world.said(world.do(f"said.append(os.path.exists({missing!r}))\ntry: open({missing!r})\nexcept OSError: 0"))


def test_a_rule_about_a_tool_is_about_its_calls_alone(world: World) -> None:
    code = "open({path!r}, 'w').close(); os.unlink({path!r}); said.append('gone')"
    path = str(world.folder / "there")
    assert world.said(world.do(code.format(path=path))) == ["gone"]
    assert reason(world.do(code.format(path=path), "careful")) == ("observed_behaviour", "no-deleting")
    assert reason(world.do(code.format(path=path), "CAREFUL")) == ("observed_behaviour", "no-deleting")


def test_a_program_is_told_by_its_command_line(world: World) -> None:
    assert reason(world.do("subprocess.run(['uname'], stdout=-3)")) == ("observed_behaviour", "no-shell")
    assert reason(world.do("subprocess.run(['sh', '-c', 'true; whoami'], stdout=-3)")) == (
        "observed_behaviour",
        "no-shell",
    )
    assert world.said(world.do("subprocess.run(['true']); said.append(1)")) == ["1"]


def test_a_command_line_that_is_cut_off_counts(world: World) -> None:
    long = "subprocess.run(['true', 'x' * 600], stdout=-3)"
    assert reason(world.do(long)) == ("observed_behaviour", "no-shell")


def test_nothing_beside_the_answer_carries_what_is_withheld(world: World) -> None:
    note = "write({'method': 'notifications/message', 'params': {'level': 'info', 'data': open(%r).read()}})"
    world.run.send(
        {
            "jsonrpc": "2.0",
            "id": "note",
            "method": "tools/call",
            "params": {"name": "run", "arguments": {"code": note % str(world.key)}},
        }
    )
    first = world.run.receive()
    assert first["id"] == "note"
    assert reason(first["result"]) == ("observed_behaviour", "no-keys")


def test_the_next_call_is_answered_again(world: World) -> None:
    assert reason(world.do(f"open({str(world.key)!r})"))[0] == "observed_behaviour"
    assert world.said(world.do("said.append(2)")) == ["2"]


def test_what_is_done_between_calls_withholds_the_next_answer(world: World) -> None:
    # The thread waits until its call was answered; the next call waits until the thread is done.
    world.do(
        "gate = kept['gate'] = threading.Event(); "
        f"thread = kept['thread'] = threading.Thread(target=lambda: (gate.wait(), open({str(world.key)!r}).read())); "
        "thread.start()"
    )
    result = world.do("answer = answer; kept['gate'].set(); kept['thread'].join(); said.append(1)")
    assert reason(result) == ("observed_behaviour", "no-keys")


def test_tell_and_shadow_only_record(world: World) -> None:
    connect = "s = socket.socket(); s.connect_ex(('127.0.0.9', 9)); s.close(); said.append(1)"
    assert world.said(world.do(connect)) == ["1"]
    assert world.said(world.do(f"open({str(world.folder / 'shadowed')!r}, 'w').write('x'); said.append(1)")) == ["1"]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, dict[str, Any], dict[str, Any]]:
    """A server that was ended for what it did; with the answers of a withheld call, and of the one that ended it."""
    with started(tmp_path_factory.mktemp("ended")) as world:
        withheld = world.do(f"open({str(world.key)!r})")
        world.do(f"open({str(world.folder / 'shadowed')!r}, 'w').write('x')")
        last = world.do("s = socket.socket(); s.connect_ex(('127.0.0.66', 9))\nthreading.Event().wait()")
        assert world.run.receive() is None
        assert world.run.wait() != 0
    return world, withheld, last


def test_deny_ends_the_server_and_answers_the_call(ended: tuple[World, dict[str, Any], dict[str, Any]]) -> None:
    world, _, last = ended
    assert reason(last) == ("observed_behaviour", "ends")
    event = [event for event in world.run.events() if event["kind"] == "behaviour_found"][-1]
    assert (event["rule"], event["decision"], event["detail"]["action"]) == ("ends", "deny", "deny")
    seen = event["detail"]["seen"]
    assert (seen["act"], seen["host"], seen["port"]) == ("net.connect", "127.0.0.66", 9)


def test_events_name_call_rule_and_act(ended: tuple[World, dict[str, Any], dict[str, Any]]) -> None:
    world, withheld, _ = ended
    first, second, _ = [event for event in world.run.events() if event["kind"] == "behaviour_found"]
    assert first["call_id"] == withheld["_meta"]["mcp-interlock/denial"]["audit_id"]
    assert (first["rule"], first["reason"], first["decision"]) == ("no-keys", "observed_behaviour", "deny")
    assert first["detail"]["seen"] == {"act": "fs.read", "action": "open", "path": str(world.key)}
    assert "openat" in first["detail"]["evidence"]
    assert second["shadow_rules"] == ["shadowed"]
    assert not {"rule", "decision"} & second.keys()
    completed = [event for event in world.run.events() if event["kind"] == "completed"]
    assert [event["outcome"] for event in completed if event["method"] == "tools/call"] == [
        "withheld",
        "done",
        "withheld",
    ]


def test_a_server_that_reads_its_own_stdout_cannot_be_known_any_more(tmp_path: Path) -> None:
    # It could write, take the bytes back, and have them counted for an answer that it writes later.
    with started(tmp_path) as world:
        world.do("kept['w'] = os.open('/proc/self/fd/1', os.O_WRONLY)")
        result = world.do("kept['r'] = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)")
        assert reason(result)[0] == "trace_incomplete"
        assert reason(world.do("said.append(1)"))[0] == "trace_incomplete"


@pytest.mark.parametrize("opening", [None, "initialize"])
def test_a_call_that_comes_first_is_judged_as_any(tmp_path: Path, opening: str | None) -> None:
    # Stateless clients (2026-07-28) send no opening; others may send it together with their first call.
    victim, early = tmp_path / "victim", tmp_path / "early"
    victim.touch()
    early.touch()
    starting = f"import os, time; os.unlink({str(early)!r}); time.sleep(0.3)\n"
    first = {"jsonrpc": "2.0", "id": 0, "method": opening, "params": INITIALIZE}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    call |= {"params": {"name": "careful", "arguments": {"code": f"os.unlink({str(victim)!r})"}}}
    command = [sys.executable, "-I", "-S", "-c", starting + OBEDIENT]
    with start_run(tmp_path / "run", command, *NAMED, policy=POLICY.format(secrets=tmp_path / "keys")) as run:
        run.send(*([first] if opening else []), call)
        result = run.answer(1)["result"]
        assert run.call("careful", 2, code="said.append(1)")["result"]["content"][0]["text"] == "1"
        assert run.end() == 0
    assert reason(result) == ("observed_behaviour", "no-deleting")
    audit_id = result["_meta"]["mcp-interlock/denial"]["audit_id"]
    deleted = {
        entry["path"]: event.get("call_id")
        for event in run.events()
        if event["kind"] == "observed"
        for entry in event["detail"].get("observations", [])
        if entry["capability"] == "fs.delete"
    }
    assert deleted == {str(early): None, str(victim): audit_id}


def test_what_a_slow_server_does_before_it_reads_its_first_call_is_not_the_calls(tmp_path: Path) -> None:
    early = tmp_path / "early"
    early.touch()
    go = tmp_path / "go"
    starting = (
        "import os, time\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        f"os.unlink({str(early)!r}); time.sleep(0.3)\n"
    )
    command = [sys.executable, "-I", "-S", "-c", starting + OBEDIENT]
    with start_run(tmp_path / "run", command, *NAMED, policy=POLICY.format(secrets=tmp_path / "keys")) as run:
        call = {"name": "careful", "arguments": {"code": "said.append(1)"}}
        run.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
        deadline = time.monotonic() + PATIENCE
        while not any(event["kind"] == "decided" for event in run.events()):  # it is in the server's pipe
            assert time.monotonic() < deadline
            time.sleep(0.02)
        go.touch()
        assert run.answer(1)["result"]["content"][0]["text"] == "1"


def test_without_a_trace_the_server_is_not_started(tmp_path: Path) -> None:
    policy = POLICY.format(secrets=tmp_path)
    with start_run(tmp_path, ["true"], "--trace", "off", policy=policy) as run:
        assert run.end() == 1
    assert "is not traced" in run.errors()


def test_a_rule_for_another_server_asks_for_no_trace(tmp_path: Path) -> None:
    policy = (
        "version: 1\ndefault: allow\nrules: [{id: a, on: observed, action: deny, acts: [exec], servers: [other]}]\n"
    )
    with start_run(tmp_path, ["true"], "--trace", "off", policy=policy) as run:
        assert run.end() == 0
