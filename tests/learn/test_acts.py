"""Acts: the same thing once, whoever saw it."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.learn.acts import STARTUP, Acts, acts_of_events, target_of


def event(tool: str | None, *seen: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "observed", "tool": tool, "detail": {"observations": list(seen)}}


def seen(capability: str, action: str = "open", **fields: Any) -> dict[str, Any]:
    return {"capability": capability, "action": action, "count": 1, **fields}


def test_events_become_acts_by_tool_and_count() -> None:
    read = seen("fs.read", path="/a/b")
    acts = acts_of_events(
        [event("t", read | {"count": 3}), event("u", read), event(None, seen("proc.exec", path="/x"))]
    )
    assert [(act.kind, act.target, dict(act.by)) for act in acts] == [
        ("read", "/a/b", {"t": 3, "u": 1}),
        ("exec", "/x", {STARTUP: 1}),
    ]


def test_what_was_not_there_and_what_is_odd_is_left_out() -> None:
    odd: list[Any] = [
        seen("fs.read", path="/a", error="ENOENT"),
        seen("kernel", path="x"),
        {"capability": 3},
        "x",
        None,
    ]
    assert list(acts_of_events([event("t", *odd), {}, {"detail": "x"}, {"detail": {"observations": 3}}])) == []


@pytest.mark.parametrize(
    ("given", "target"),
    [
        (("write", "unlink", "/a/b", None, None), "/a"),
        (("write", "rename", "/a/b", None, None), "/a"),
        (("write", "write", "/a/b", None, None), "/a/b"),
        (("reach", "connect", None, "X.example:443", None), "x.example:443"),
        (("reach", "query", None, "127.0.0.1:53", "X.example."), "x.example"),
        (("reach", "raw socket", None, "AF_PACKET", None), None),
        (("socket", "connect", "/var/run/nscd/socket", None, None), None),
        (("socket", "listen", "/tmp/x", None, None), None),
        (("read", "open", "relative", None, None), None),
        (("exec", "exec", "/proc/self/exe", None, None), None),
        (("exec", "exec", "/proc/77/exe", None, None), None),
        (("exec", "exec", "/proc/77/root/usr/bin/x", None, None), "/proc/77/root/usr/bin/x"),
    ],
)
def test_what_a_profile_would_have_to_name(given: Any, target: str | None) -> None:
    assert target_of(*given) == target


def test_one_blame_is_enough_and_one_unnamed_time_too() -> None:
    acts = Acts()
    acts.add("read", "/a", "t", named=True)
    acts.add("read", "/a", "t", blamed="canary-read", named=True)
    acts.add("read", "/a", "t", named=False)
    (act,) = acts
    assert (act.blamed, act.from_arguments, act.count) == ("canary-read", False, 3)


@pytest.mark.parametrize(
    ("arguments", "observation", "named"),
    [
        ({"url": "https://API.example/x"}, {"capability": "net.connect", "name": "api.example"}, True),
        ({"url": "https://api.example/x"}, {"capability": "net.connect", "peer": "api.example:443"}, True),
        ({"url": "http://127.0.0.1:80/"}, {"capability": "net.connect", "peer": "127.0.0.1:80"}, True),
        ({"url": "https://api.example/x"}, {"capability": "net.connect", "peer": "evil-api.example:443"}, False),
        ({"zone": "example"}, {"capability": "net.connect", "peer": "api.example:443"}, False),
        ({"site": "api.example"}, {"capability": "net.connect", "peer": "www.api.example:443"}, True),
        ({"path": "/srv/data"}, {"capability": "fs.read", "path": "/srv/data/a"}, True),
        ({"path": "/srv/data"}, {"capability": "fs.read", "path": "/srv/database"}, False),
        (None, {"capability": "fs.read", "path": "/srv/data/a"}, False),
    ],
)
def test_a_trail_knows_what_a_calls_arguments_named(arguments: Any, observation: dict[str, Any], named: bool) -> None:
    (act,) = acts_of_events([event("t", seen(**{"action": "x", **observation})) | {"arguments": arguments}])
    assert act.from_arguments is named
