"""A profile of what was seen: what it permits, and what it leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.learn.acts import Acts
from proxy.learn.generalise import Places
from proxy.learn.learned import LearnedProfile, learn
from proxy.sandbox.profile import PRESETS
from proxy.sandbox.profile_files import parse_profile, preset_file

PLACES = Places("/home/ada", "/work", ("/home/ada/projects",), ("/opt/server",))
LOADED = {name: parse_profile(preset_file(name)) for name in PRESETS}


def learned(*acts: tuple[Any, ...], bind: bool = False) -> LearnedProfile:
    all_acts = Acts()
    for kind, target, *rest in acts:
        fields = rest[0] if rest else {}
        all_acts.add(kind, target, fields.pop("tool", "t"), **fields)
    return learn(all_acts, PLACES, LOADED, server="s", source="a probe", env=["API_KEY", "PATH"], bind=bind)


def values(profile: LearnedProfile, name: str) -> list[str]:
    return [line.value for line in profile.sections[name]]


def test_lines_have_their_evidence() -> None:
    profile = learned(("read", "/home/ada/projects/a"), ("read", "/home/ada/projects/b", {"tool": "u"}))
    assert [(line.value, line.evidence) for line in profile.sections["read"]] == [("$ROOTS", "t: 1, u: 1")]


def test_what_presets_give_is_not_said_again() -> None:
    profile = learned(
        ("exec", "/usr/bin/node"), ("read", "/usr/lib/x.so"), ("read", "/opt/server/a"), ("write", "/tmp/x")
    )
    assert [line.value for line in profile.extends] == ["node"]
    assert values(profile, "read") == values(profile, "write") == values(profile, "exec") == []


@pytest.mark.parametrize(
    ("kind", "target", "preset"),
    [
        ("exec", "/usr/bin/python3.13", "python"),
        ("read", "/srv/runtime/lib/python3.11/os.py", "python"),
        ("exec", "/usr/bin/git", "git"),
        ("exec", "/usr/lib/chromium/chromium", "browser"),
    ],
)
def test_presets_are_known_by_what_runs(kind: str, target: str, preset: str) -> None:
    assert [line.value for line in learned((kind, target)).extends] == [preset]


def test_what_may_be_written_is_not_said_to_be_read() -> None:
    profile = learned(("read", "/home/ada/projects/a"), ("write", "/home/ada/projects/a"))
    assert (values(profile, "read"), values(profile, "write")) == ([], ["$ROOTS"])


@pytest.mark.parametrize("kind", ["read", "write", "exec", "reach", "socket"])
def test_what_is_blamed_is_left_out(kind: str) -> None:
    profile = learned((kind, "/srv/x", {"blamed": "some-rule"}))
    assert not any(profile.sections[name] for name in ("read", "write", "exec", "sockets"))
    assert (profile.network, profile.any_host) == ((), None)
    assert [each.why for each in profile.left_out] == ["a probe blames it: some-rule"]


def test_blamed_files_of_a_folder_are_told_as_one_and_none_is_lost() -> None:
    inside = [("write", f"/opt/server/state.{number}.tmp", {"blamed": "own-code"}) for number in range(5)]
    apart = [
        ("read", "/home/ada/.ssh/id_rsa", {"blamed": "canary"}),
        ("read", "/home/ada/.ssh/id_dsa", {"blamed": "canary"}),
        ("read", "/proc/1/maps", {"blamed": "canary"}),
        ("reach", "evil.example:443", {"blamed": "egress"}),
    ]
    assert [each.what for each in learned(*inside, *apart).left_out] == [
        *(f"read {path}, t: 1" for path in ("/home/ada/.ssh/id_rsa", "/home/ada/.ssh/id_dsa", "/proc/1/maps")),
        "reach evil.example:443, t: 1",
        "write $PACKAGE, t: 5",
    ]


@pytest.mark.parametrize(
    "path", ["/home/ada/.ssh/id_rsa", "/home/ada/.claude/x", "/etc/shadow", "/home/ada/.env/.pgpass"]
)
def test_a_secret_is_never_opened(path: str) -> None:
    profile = learned(("read", path), ("write", path))
    assert values(profile, "read") == values(profile, "write") == []
    assert all("secret" in each.why for each in profile.left_out)
    assert len(profile.left_out) == 2


@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("path", ["/home/ada", "/srv", "/"])
def test_a_look_at_a_home_opens_no_home(kind: str, path: str) -> None:
    profile = learned((kind, path))
    assert values(profile, "read") == values(profile, "write") == []
    assert [each.why for each in profile.left_out] == ["too broad: name what is in this folder"]


def test_what_a_preset_gives_is_not_told_as_left_out() -> None:
    assert learned(("read", "/usr")).left_out == ()


def test_sockets_in_its_own_temporary_folders_are_its_own() -> None:
    profile = learned(("socket", "/tmp/b-49493b.sock"), ("socket", "/tmp/b-77aa01.sock"), ("socket", "/run/db.sock"))
    assert values(profile, "sockets") == ["$TMP", "/run/db.sock"]
    assert values(learned(("exec", "/usr/bin/chromium"), ("socket", "/tmp/x/y.sock")), "sockets") == []


def test_hosts_have_ports_and_names_alone_only_where_nothing_was_connected() -> None:
    profile = learned(("reach", "api.example:443"), ("reach", "api.example"), ("reach", "other.example"))
    assert [line.value for line in profile.network] == ["api.example:443", "other.example"]


def test_hosts_that_arguments_name_are_any() -> None:
    profile = learned(("reach", "x.example:443", {"named": True}))
    assert profile.any_host is not None
    assert profile.network == ()


def test_programs_are_named_and_the_servers_own_are_its_own() -> None:
    profile = learned(("exec", "/usr/bin/ffprobe"), ("exec", "/srv/tool"), ("exec", "/opt/server/bin/x"))
    assert values(profile, "exec") == ["/srv/tool", "ffprobe"]


def test_variables_beyond_the_presets_are_listed() -> None:
    assert values(learned(), "env") == ["API_KEY"]


def test_tools_that_touch_only_what_arguments_name_are_bound_if_asked() -> None:
    acts = (
        ("read", "/home/ada/projects/a", {"tool": "read_file", "named": True}),
        ("read", "/home/ada/projects/b", {"tool": "index", "named": True}),
        ("read", "/home/ada/projects/c", {"tool": "index"}),
        ("reach", "x.example:443", {"tool": "fetch", "named": True}),
    )
    bound = [line.value for line in learned(*acts, bind=True).tools]
    assert bound == ["read_file\0files", "fetch\0network"]
    assert learned(*((k, t, dict(f)) for k, t, f in acts)).tools == ()


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        *(
            ("read", f"/home/ada/{name}")
            for name in ("*", "**", "Documents/[a-z]*", "?ocuments", "x/\n", "..", "$HOME")
        ),
        *(("write", f"/data/{name}") for name in ("*", "**", "a*")),
        *(("exec", path) for path in ("/usr/bin/*", "/data/**")),
        *(("reach", host) for host in ("*", "*:443", "*.com:443", "any host", "a.test:*", "")),
        *(("socket", path) for path in ("/run/*", "$HOME/x", "x")),
    ],
)
def test_a_name_that_would_stand_for_others_is_left_out(kind: str, target: str) -> None:
    profile = learned((kind, target), (kind, target, {"named": True}))
    lines = [*profile.network, *(line for some in profile.sections.values() for line in some)]
    assert [line.value for line in lines] == ["API_KEY"]
    assert profile.any_host is None
    assert "stand for itself alone" in profile.left_out[0].why


def test_a_mark_below_a_folder_that_is_granted_as_a_whole_is_no_matter() -> None:
    assert values(learned(("read", "/home/ada/projects/[id]/page.tsx")), "read") == ["$ROOTS"]


def test_the_home_of_somebody_else_is_never_a_line() -> None:
    profile = learned(("write", "/home/bob/20261119-120000.log"), ("read", "/home/bob"))
    assert values(profile, "write") == ["/home/bob/20261119-120000.log"]
    assert values(profile, "read") == []
