"""Two profiles: what the new one permits more, and what less."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.learn.compare import compare
from proxy.sandbox.profile import SandboxProfile


def more(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, str]]:
    found = compare(SandboxProfile.model_validate(old), SandboxProfile.model_validate(new))
    return [(each.section, each.value) for each in found if each.more]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"read": ["$HOME/a"]}, {"read": ["$HOME/a", "$HOME/b"]}, [("read", "$HOME/b")]),
        ({"read": ["$HOME/a/**"]}, {"read": ["$HOME/a/b/c", "~/a/x/**"]}, []),
        ({"write": ["$HOME/a"]}, {"read": ["$HOME/a"]}, []),
        ({"read": ["$HOME/a"]}, {"write": ["$HOME/a"]}, [("write", "$HOME/a")]),
        ({"read": ["$HOME/**"]}, {"secrets": ["$HOME/.netrc"]}, [("secrets", "$HOME/.netrc")]),
        ({"exec": ["git"]}, {"exec": ["git", "sh"]}, [("exec", "sh")]),
        ({"env": []}, {"env": ["API_KEY"]}, [("env", "API_KEY")]),
        ({}, {"sockets": ["/run/x"]}, [("sockets", "/run/x")]),
        ({"network": "none"}, {"network": ["a.example:443"]}, [("network", "a.example:443")]),
        ({"network": ["*.example"]}, {"network": ["a.example:443"]}, []),
        ({"network": ["a.example:443"]}, {"network": ["a.example"]}, [("network", "a.example")]),
        ({"network": ["a.example:443"]}, {"network": "any"}, [("network", "any")]),
        ({"network": "any"}, {"network": ["a.example:443"]}, []),
        ({"hide": ["**/.env"]}, {}, [("hide", "no longer **/.env")]),
        ({"mode": "enforce"}, {"mode": "shadow"}, [("mode", "shadow")]),
        ({"on_violation": "end"}, {}, [("on_violation", "tell")]),
        ({"limits": {"processes": 4}}, {"limits": {"processes": 8}}, [("limits.processes", "8")]),
        ({"limits": {"processes": 4}}, {}, [("limits.processes", "no limit")]),
        ({"tools": {"t": {"files": "from arguments"}}}, {}, [("tools.t", "files no longer from arguments")]),
    ],
)
def test_more(old: dict[str, Any], new: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert more(old, new) == expected
    assert more(new, new) == []


def test_less_is_told_as_less() -> None:
    found = compare(SandboxProfile(read=["$HOME/a"]), SandboxProfile())
    assert [(each.section, each.more) for each in found] == [("read", False)]
