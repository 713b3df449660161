from __future__ import annotations

import pytest

from proxy.trace.capability import Capability, Observation, text


def test_the_capabilities_are_those_of_the_taxonomy() -> None:
    assert [str(each) for each in Capability] == [
        *("fs.read", "fs.write", "fs.delete", "net.connect", "net.dns", "net.listen"),
        *("ipc.unix", "proc.exec", "exec.fileless", "kernel"),
    ]


@pytest.mark.parametrize(
    ("fields", "target"),
    [
        ({"path": "/a"}, "/a"),
        ({"peer": "1.2.3.4:53", "name": "a.example"}, "a.example"),
        ({"peer": "1.2.3.4:5"}, "1.2.3.4:5"),
        ({"argv": ("a", "b")}, "a b"),
    ],
)
def test_an_observation_says_what_was_done_to_what(fields: dict[str, str], target: str) -> None:
    seen = Observation(Capability.FS_READ, "open", 1, 2.0, "line", **fields)  # type: ignore[arg-type]
    assert (seen.target, seen.ok) == (target, True)


def test_bytes_that_are_no_text_stay_distinct() -> None:
    assert text("é".encode()) == "é"
    assert text(b"a\xff") == "a\\xff"
