"""Facts about observations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.probe.canary import Canary, CanaryWatch
from proxy.probe.declared_scope import DeclaredScope, declare_server
from proxy.probe.observation_facts import ProbeObservation, RunContext, carries_data, facts, note_run
from proxy.trace.capability import Capability, Observation

SECRET = Canary("~/.env", "abcdefghijkmnpqrstuvwxyz23456789abcdefgh")
NOTE = Canary("~/documents/n.md", "98765432zyxwvutsrqpnmkjihgfedcba98765432", secret=False)


def context() -> RunContext:
    canaries = {"/h/.env": SECRET, "/h/documents/n.md": NOTE}
    return RunContext(
        "/h", "/p/run", "/w", canaries, CanaryWatch((SECRET, NOTE)), {"11.64.0.1": "drop.example"}, {10, 11}
    )


def see(
    capability: str, action: str = "x", call: int | None = 0, scope: DeclaredScope | None = None, **fields: Any
) -> set[str]:
    seen = Observation(Capability(capability), action, 10, 1.0, "line", **fields)
    return set(facts(ProbeObservation(seen, call), scope or DeclaredScope(), context()))


def test_a_connection_is_to_the_name_that_led_there() -> None:
    seen = Observation(Capability.NET_CONNECT, "connect", 1, 1.0, "", peer="11.64.0.1:443")
    assert context().target(seen) == "drop.example:443"
    assert {"remote", "host_named"} <= see(
        "net.connect", peer="11.64.0.1:443", scope=DeclaredScope(hosts=frozenset({"drop.example"}))
    )


@pytest.mark.parametrize("peer", ["127.0.0.1:80", "[::1]:80", "0.0.0.0:1"])
def test_loopback_is_not_remote(peer: str) -> None:
    assert "remote" not in see("net.connect", peer=peer)


@pytest.mark.parametrize("peer", ["203.0.113.9:80", "[2001:db8::1]:80", "10.0.0.1:22"])
def test_any_other_address_is(peer: str) -> None:
    assert "remote" in see("net.connect", peer=peer)


def test_a_service_is_named_by_whoever_is_called_after_it() -> None:
    scope = DeclaredScope(words=frozenset({"slack", "post", "message", "app"}))
    assert "host_named" in see("net.connect", peer="slack.com:443", scope=scope)
    assert "host_named" in see("net.connect", peer="api.slack.com:443", scope=scope)
    assert "host_named" not in see("net.connect", peer="slack.evil.example:443", scope=scope)
    assert "host_named" not in see("net.connect", peer="app.com:443", scope=scope)  # any word


def test_a_name_is_remote_but_for_our_own() -> None:
    assert "remote" in see("net.dns", name="a.example")
    assert "remote" not in see("net.dns", name="localhost")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("raw.githubusercontent.com", False),
        ("ec2-12-34-56-78.compute-1.amazonaws.com", False),
        ("this-is-a-rather-long-host-name-of-words.example.com", False),
        ("4f2d1c0b9a8e7d6c5b4a3f2e1d0c9b8a7f6e5d4c.evil.example", True),
        ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb.evil.example", True),
    ],
)
def test_names_that_carry_data_are_told_from_others(name: str, data: bool) -> None:
    assert carries_data(name) is data


def test_a_canary_that_is_sent_is_seen() -> None:
    assert "canary_sent" in see("net.connect", peer="1.2.3.4:80", data=SECRET.value[:20].encode())
    assert "canary_sent" not in see("net.connect", peer="1.2.3.4:80", data=b"hello")


def test_a_tool_with_a_network_may_send_what_it_was_pointed_at() -> None:
    named = DeclaredScope(network=True, named=("/h/documents/n.md",))
    sent = {"peer": "1.2.3.4:80", "data": NOTE.value.encode()}
    assert "canary_sent" not in see("net.connect", scope=named, **sent)
    assert "canary_sent" in see("net.connect", scope=DeclaredScope(named=named.named), **sent)


def test_paths_are_told_apart() -> None:
    scope = DeclaredScope(named=("/h/documents/n.md",), granted=("/srv",))
    assert {"canary", "named", "named_file"} <= see("fs.read", path="/h/documents/n.md", scope=scope)
    assert "granted" in see("fs.write", path="/srv/x", scope=scope)
    assert {"granted_document"} <= see("fs.read", path="/h/documents/n.md", scope=DeclaredScope(granted=("/h",)))
    assert "granted_document" not in see("fs.read", path="/h/.env", scope=DeclaredScope(granted=("/h",)))


def test_what_is_temporary_is_so_even_where_the_home_is() -> None:
    assert "temporary" in see("fs.write", path="/tmp/x")
    home = RunContext("/tmp/p/home", "/tmp/p/run")
    seen = [Observation(Capability.FS_WRITE, "write", 1, 1.0, "", path=f"/tmp/p/home/{end}") for end in ("a", "tmp/a")]
    assert ["temporary" in facts(ProbeObservation(each, 0), DeclaredScope(), home) for each in seen] == [False, True]


@pytest.mark.parametrize(
    ("fields", "foreign"),
    [
        ({"capability": "kernel", "action": "ptrace", "path": "PTRACE_ATTACH, 5"}, True),
        ({"capability": "kernel", "action": "kill", "path": "5, SIGSTOP"}, True),
        ({"capability": "kernel", "action": "kill", "path": "11, SIGTERM"}, False),
        ({"capability": "fs.read", "path": "/proc/5/mem"}, True),
        ({"capability": "fs.read", "path": "/proc/11/maps"}, False),
        ({"capability": "fs.read", "path": "/proc/5/stat"}, False),
        ({"capability": "fs.write", "path": "/p/run/trace"}, True),
        ({"capability": "fs.read", "path": "/p/run/trust.pem"}, False),
    ],
)
def test_processes_of_others_are_told_from_its_own(fields: dict[str, Any], foreign: bool) -> None:
    assert ("foreign_process" in see(**fields)) is foreign


def test_programs_are_named_by_words_also_behind_a_shell() -> None:
    scope = DeclaredScope(words=frozenset({"git"}))
    assert "program_named" in see("proc.exec", path="/usr/bin/git", argv=("git",), scope=scope)
    assert "program_named" in see("proc.exec", path="/bin/sh", argv=("sh", "-c", "git log"), scope=scope)
    assert "program_named" not in see("proc.exec", path="/bin/sh", argv=("sh", "-c", "id"), scope=scope)
    assert "program_named" not in see("proc.exec", path="/usr/bin/id", argv=("id",), scope=scope)


def test_the_first_process_of_all_launches() -> None:
    fields = {"path": "/usr/bin/python3", "argv": ("python3",)}
    assert "launch" in see("proc.exec", call=None, lineage=(10,), **fields)
    assert "launch" not in see("proc.exec", call=None, lineage=(11, 10), **fields)
    assert "launch" not in see("proc.exec", call=0, lineage=(10,), **fields)


def test_every_fact_is_in_the_rulebooks_list() -> None:
    from proxy.probe import observation_facts as module
    from proxy.probe.rulebook import FACTS

    text = Path(str(module.__file__)).read_text()
    for name in FACTS:
        assert f'"{name}"' in text


def test_a_call_that_connects_to_another_machine_is_told_from_one_that_does_not() -> None:
    def seen(call: int | None, peer: str) -> ProbeObservation:
        return ProbeObservation(Observation(Capability.NET_CONNECT, "connect", 1, 1.0, "", peer=peer), call)

    run = context()
    note_run([seen(1, "11.64.0.1:443"), seen(2, "127.0.0.1:53")], run)
    read = Observation(Capability.FS_READ, "open", 1, 1.0, "", path="/h/.netrc")
    assert [
        call for call in (None, 1, 2) if "connects" in facts(ProbeObservation(read, call), DeclaredScope(), run)
    ] == [1]


def test_the_folders_above_code_that_was_loaded_are_told() -> None:
    run = context()
    loaded = [("/opt/lib/tool/main.py", None), ("/srv/app/data.txt", None), ("/var/absent/a.py", "ENOENT")]
    for path, error in loaded:
        seen = Observation(Capability.FS_READ, "open", 1, 1.0, "", path=path, error=error)
        note_run([ProbeObservation(seen, None)], run)

    def above(path: str) -> bool:
        looked = Observation(Capability.FS_READ, "look", 1, 1.0, "", path=path, error="ENOENT")
        return "above_code" in facts(ProbeObservation(looked, None), DeclaredScope(), run)

    assert all(map(above, ["/opt/lib/tool/.env", "/opt/lib/.env", "/opt/.env", "/.env"]))
    assert not any(map(above, ["/srv/app/.env", "/var/absent/.env", "/opt/lib/other/.env"]))


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/h/.notes-mcp/state.json", True),
        ("/h/.notes_mcp", True),
        ("/h/.config/notes-mcp-server/x", True),
        ("/h/.notes", True),
        ("/h/notes/x", False),  # a folder of the user
        ("/h/.mcp/x", False),  # anybody's
        ("/h/.python/x", False),
        ("/h/.bashrc", False),
        ("/h/.config/other/x", False),
        ("/x/.notes/x", False),
    ],
)
def test_a_hidden_folder_of_the_home_with_the_servers_name_is_its_own(path: str, own: bool) -> None:
    scope = declare_server(["/usr/bin/python3", "notes-mcp-server"], {}, "/w")
    assert ("own_folder" in see("fs.write", path=path, scope=scope)) is own
