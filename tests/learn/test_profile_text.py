"""The file of a learned profile: it loads, and nothing that a server does writes a line of its own into it."""

from __future__ import annotations

import pytest

from proxy.learn.acts import Acts
from proxy.learn.generalise import Places
from proxy.learn.learned import learn
from proxy.learn.profile_text import comment, profile_text, quoted
from proxy.sandbox.profile import PRESETS, SandboxProfile
from proxy.sandbox.profile_files import parse_profile, parse_text, preset_file

LOADED = {name: parse_profile(preset_file(name)) for name in PRESETS}


def written(acts: Acts, name: str = "s", *, bind: bool = False) -> tuple[str, SandboxProfile]:
    places = Places("/home/ada", "/work", ("/home/ada/projects",))
    text = profile_text(learn(acts, places, LOADED, server=name, source="a probe", bind=bind), "2026-11-18")
    return text, parse_text(text.encode(), "it")


def test_it_loads_as_what_was_learned() -> None:
    acts = Acts()
    acts.add("exec", "/usr/bin/node", "start-up")
    acts.add("write", "/home/ada/projects/a", "write_file", named=True)
    acts.add("reach", "api.example:443", "sync", count=4)
    acts.add("read", "/home/ada/.ssh/id_rsa", "sync", blamed="canary-read")
    text, profile = written(acts, bind=True)
    assert (profile.extends, profile.write, profile.network) == (["node"], ["$ROOTS"], ["api.example:443"])
    assert profile.tool("write_file").files == "from arguments"
    assert (profile.mode, profile.on_violation) == ("enforce", "tell")
    assert "# sync: 4" in text
    assert "canary-read" in text.partition("# Left out")[2]


def test_nothing_seen_permits_nothing() -> None:
    _, profile = written(Acts())
    assert profile.hosts == ()
    assert not any((profile.read, profile.write, profile.exec, profile.sockets, profile.secrets))


@pytest.mark.parametrize(
    "evil",
    [
        "x\nnetwork: any",
        "x\r\nsecrets: ['/etc/shadow']",
        "x\u2028mode: learn",
        "x\x85mode: learn",
        "x # y: [z",
        "x'\"}\\",
        "\x1b]0;mine\x07",
        "- a: &b [*b]",
        "x\0files: profile}, '*': {network: profile}}\nread: ['$HOME']\n#",
    ],
)
def test_names_of_servers_tools_and_files_stay_text(evil: str) -> None:
    acts = Acts()
    acts.add("read", "/srv/a", evil)
    acts.add("reach", "a.example:443", evil, named=True)
    acts.add("read", f"/home/ada/projects/{evil}", evil, named=True)
    acts.add("read", "/etc/shadow", evil)
    acts.add("exec", "/srv/tool", evil, blamed=evil)
    text, profile = written(acts, evil, bind=True)
    assert profile.read == ["$ROOTS", "/srv/a"]
    assert profile.secrets == []
    assert (profile.mode, profile.network) == ("enforce", "any")
    assert "\x1b" not in text
    assert profile.tool(evil).network == "from arguments"


@pytest.mark.parametrize("value", ["none", "1.5", "on", "a: b", "", "~", "x#y", "@x", "*.example"])
def test_a_value_that_yaml_reads_otherwise_is_quoted(value: str) -> None:
    assert quoted(value).startswith('"')
    assert quoted("$HOME/a-b.c") == "$HOME/a-b.c"


def test_a_comment_is_one_short_line() -> None:
    assert "\n" not in comment("a\nb")
    assert len(comment("x" * 900)) == 120
