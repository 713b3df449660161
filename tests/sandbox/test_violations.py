from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from proxy.sandbox.file_scope import FileLimits, PathSet
from proxy.sandbox.violations import Boundaries, unique, violations


class Seen(NamedTuple):
    capability: str
    action: str = "open"
    path: str | None = None
    error: str | None = None
    peer: str | None = None
    name: str | None = None


def _hidden_by(path: str) -> str | None:
    return "hide: **/.env" if path.endswith("/.env") else None


GRANTED = Boundaries(
    FileLimits(
        PathSet(["/data", "/opt/deep/x"]),
        PathSet(["/data/rw"]),
        fresh=PathSet(["/tmp"]),
        hidden=lambda path: _hidden_by(path) is not None,
    ),
    PathSet(["/usr/bin/git"]),
    frozenset({"/run/db"}),
    ("api.example.com:443",),
    _hidden_by,
)
NETWORK, EXEC, READ, WRITE = (
    "network does not list it",
    "exec does not list it",
    "read and write do not list it",
    "write does not list it",
)
# What was seen; what refuses it where it failed with EACCES; and where it was done, in shadow.
ROWS: list[tuple[Seen, str | None]] = [
    (Seen("fs.read", path="/data/a"), None),
    (Seen("fs.read", path="/etc/shadow"), READ),
    (Seen("fs.read", path="/data/.env"), "hide: **/.env"),
    (Seen("fs.write", path="/data/a"), WRITE),
    (Seen("fs.write", path="/data/rw/a"), None),
    (Seen("fs.delete", "unlink", "/data/a"), WRITE),
    (Seen("fs.write", path="/tmp/a"), None),
    (Seen("fs.read", "list", "/opt"), None),  # on the way to what is granted
    (Seen("fs.read", path="/proc/self/status"), None),
    (Seen("fs.write", path="/proc/sys/kernel/x"), WRITE),
    (Seen("proc.exec", "exec", "/usr/bin/git"), None),
    (Seen("proc.exec", "exec", "/usr/bin/curl"), EXEC),
    (Seen("exec.fileless", "exec", "/memfd:x"), EXEC),
    (Seen("ipc.unix", "connect", "/run/db"), None),
    (Seen("ipc.unix", "connect", "/run/other"), "sockets does not list it"),
    (Seen("net.dns", "lookup", name="api.example.com"), None),
    (Seen("net.dns", "lookup", name="evil.example"), NETWORK),
    (Seen("net.connect", "connect", peer="93.184.216.34:443"), None),  # its name was judged
    (Seen("kernel", "mount", "x"), "no profile grants this system call"),
    (Seen("kernel", "io_uring_setup", "x"), None),
    (Seen("net.listen", "listen"), None),
]


@pytest.mark.parametrize(("seen", "line"), ROWS, ids=str)
def test_what_is_refused_and_what_would_be(seen: Seen, line: str | None) -> None:
    refused = violations([seen._replace(error="EACCES")], GRANTED, enforced=True)
    would_be = violations([seen], GRANTED, enforced=False)
    assert [each.line for each in refused] == [each.line for each in would_be] == ([line] if line else [])
    assert [each.mechanism for each in (*refused, *would_be)] == (["landlock", "none"] if line else [])


@pytest.mark.parametrize("error", ["ENOENT", "ENOTDIR", "EISDIR", "ECONNREFUSED", "ENETUNREACH", None])
def test_other_errors_and_what_went_well_are_no_violations(error: str | None) -> None:
    assert violations([Seen("fs.read", path="/etc/shadow", error=error)], GRANTED, enforced=True) == []


@pytest.mark.parametrize("error", ["ENETUNREACH", "EHOSTUNREACH"])
def test_a_network_without_a_way_out_refuses_what_is_not_listed(error: str) -> None:
    seen = Seen("net.connect", action="connect", peer="198.51.100.7:80", error=error)
    found = violations([seen], replace(GRANTED, hosts=()), enforced=True)
    assert [(each.target, each.line, each.mechanism) for each in found] == [
        ("198.51.100.7:80", "network does not list it", "namespace")
    ]


def test_a_file_cannot_be_made_in_a_folder_that_is_out_of_sight() -> None:
    seen = Seen("fs.write", path="/outside/new", error="ENOENT")
    for exists, expected in ((["/outside"], ["view"]), ([], [])):
        granted = replace(GRANTED, exists=exists.__contains__)
        assert [each.mechanism for each in violations([seen], granted, enforced=True)] == expected


@pytest.mark.parametrize("error", ["ENOENT", "EACCES"])
def test_in_shadow_what_did_not_happen_is_no_violation(error: str) -> None:
    assert violations([Seen("fs.read", path="/etc/shadow", error=error)], GRANTED, enforced=False) == []


@pytest.mark.parametrize(("error", "mechanism"), [("EROFS", "mount"), ("EPERM", "seccomp"), ("EACCES", "landlock")])
def test_the_error_names_the_mechanism(error: str, mechanism: str) -> None:
    (found,) = violations([Seen("fs.write", path="/data/a", error=error)], GRANTED, enforced=True)
    assert (found.mechanism, found.error) == (mechanism, error)
    assert found.shown()["mechanism"] == mechanism


def test_a_profile_without_network_refuses_every_peer_and_one_with_any_none() -> None:
    peer = Seen("net.connect", "connect", peer="127.0.0.1:80")
    for hosts, count in (((), 1), (None, 0), (("127.0.0.1:80",), 0), (("127.0.0.1:81",), 1)):
        granted = Boundaries(GRANTED.files, GRANTED.programs, GRANTED.sockets, hosts, _hidden_by)
        assert len(violations([peer], granted, enforced=False)) == count


def test_equal_ones_are_counted() -> None:
    found = violations([Seen("fs.read", path="/etc/shadow")] * 3, GRANTED, enforced=False)
    ((one, count),) = unique(found)
    assert count == 3
    assert one.told == "fs.read (open) of '/etc/shadow' would be refused: read and write do not list it."
    assert one.shown()["would_be"] == "true"


def test_what_is_there_and_only_out_of_sight_is_told() -> None:
    granted = Boundaries(
        GRANTED.files, GRANTED.programs, GRANTED.sockets, (), _hidden_by, {"/etc/shadow", "/data/a"}.__contains__
    )
    seen = [Seen("fs.read", path=path, error="ENOENT") for path in ("/etc/shadow", "/etc/absent", "/data/a")]
    found = violations(seen, granted, enforced=True)
    assert [(each.target, each.mechanism) for each in found] == [("/etc/shadow", "view")]
    assert violations(seen, granted, enforced=False) == []
