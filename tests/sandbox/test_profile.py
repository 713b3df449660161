"""The model of a profile: what it refuses, and how several become one."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from proxy.sandbox.profile import SandboxProfile, chosen_environment, host_fits, merge, profile_hash

WHOLE = {
    "extends": ["node"],
    "read": ["$ROOTS", "$HOME/projects/**"],
    "write": ["$ROOTS", "$TMP"],
    "hide": ["**/.env"],
    "secrets": ["~/.ssh/known_hosts"],
    "env": ["PATH", "LANG", "NODE_*"],
    "network": ["api.github.com:443"],
    "sockets": ["/run/postgresql/.s.PGSQL.5432"],
    "exec": ["node", "/usr/bin/git"],
    "limits": {"memory": "512MB", "cpu": "60s", "processes": 64},
    "tools": {"read_file": {"files": "from arguments"}},
    "on_violation": "tell",
    "mode": "enforce",
}


def test_the_documented_profile_is_read():
    profile = SandboxProfile.model_validate(WHOLE)
    assert (profile.limits.memory, profile.limits.cpu, profile.limits.processes) == (512 << 20, 60, 64)
    assert profile.hosts == ("api.github.com:443",)
    assert profile.tool("read_file").files == "from arguments"
    assert profile.tool("write_file").files == "profile"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("read", ["projects"], "full path"),
        ("read", ["**/x"], "full path"),
        ("read", ["$HOMES/x"], "no variable"),
        ("read", ["/a/$HOME"], "beginning"),
        ("read", ["/a/../b"], "'..'"),
        ("read", ["/a\0b"], "no such characters"),
        ("hide", ["**/../x"], "'..'"),
        ("env", ["*"], "never passed"),
        ("env", ["A=B"], "variable's name"),
        ("network", ["https://x.example"], "host and its port"),
        ("network", ["x.example:70000"], "between 1 and 65535"),
        ("network", "all", "none"),
        ("sockets", ["@abstract"], "abstract"),
        ("sockets", ["/run/*.sock"], "named, not matched"),
        ("exec", ["rm -rf"], "program's name"),
        ("limits", {"memory": "lots"}, "not a size"),
        ("limits", {"cpu": "60"}, "not a duration"),
        ("limits", {"processes": 0}, "greater than"),
        ("mode", "off", "enforce"),
        ("reed", [], "Extra inputs"),
    ],
)
def test_a_line_that_cannot_hold_is_refused_in_words(field: str, value: object, said: str):
    with pytest.raises(ValidationError, match=said):
        SandboxProfile.model_validate({field: value})


def test_lists_add_up_and_the_last_single_value_holds():
    first = SandboxProfile.model_validate({"read": ["/a"], "network": ["a.example"], "limits": {"cpu": "5s"}})
    second = SandboxProfile.model_validate(
        {"read": ["/b", "/a"], "network": ["b.example"], "limits": {"memory": "1GB"}, "mode": "shadow"}
    )
    both = merge([first, second])
    assert (both.read, both.network, both.mode) == (["/a", "/b"], ["a.example", "b.example"], "shadow")
    assert (both.limits.cpu, both.limits.memory) == (5, 1 << 30)
    assert merge([first, SandboxProfile(network="none")]).hosts == ()
    assert merge([]).enforced


@pytest.mark.parametrize(
    ("host", "port", "entry", "fits"),
    [
        ("api.github.com", 443, "api.github.com:443", True),
        ("API.github.com.", 443, "api.github.com", True),
        ("api.github.com", 22, "api.github.com", False),
        ("api.github.com", 22, "api.github.com:*", True),
        ("evil-api.github.com", 443, "api.github.com", False),
        ("a.example.com", 80, "*.example.com", True),
        ("example.com", 80, "*.example.com", False),
        ("::1", 8080, "[::1]:8080", True),
    ],
)
def test_a_host_is_compared_with_its_port(host: str, port: int, entry: str, fits: bool):
    assert host_fits(host, port, [entry]) is fits


def test_the_environment_is_a_list_and_never_our_own_settings():
    environ = {"PATH": "/bin", "NODE_ENV": "x", "AWS_SECRET_ACCESS_KEY": "s", "INTERLOCK_DATABASE_URL": "u"}
    assert chosen_environment(["PATH", "NODE_*", "INTERLOCK_*"], environ) == {"PATH": "/bin", "NODE_ENV": "x"}


def test_a_profiles_fingerprint_is_that_of_what_it_grants():
    plain = SandboxProfile(read=["/a"])
    assert profile_hash(plain) == profile_hash(SandboxProfile(read=["/a"], description="x"))
    assert profile_hash(plain) != profile_hash(SandboxProfile(read=["/b"]))
