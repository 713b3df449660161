from __future__ import annotations

import os

import pytest

from proxy.sandbox.notify_acts import AT_REMOVEDIR, CREATES, Act
from proxy.trace.normalise import Normaliser
from proxy.trace.strace import TraceReader
from proxy.trace.supervised import MAX_SHOWN, trace_line

ODD = '/a "b" <c>\\ä\n'


def seen(act: Act) -> list[tuple[str, str, str | None, str | None]]:
    """Return what the trace's own reader makes of an act's line."""
    line = trace_line(act, 1.5)
    reader = TraceReader()
    found = Normaliser().take(reader.take(line)) if line is not None else []
    assert reader.unparsed == 0
    return [(str(each.capability), each.action, each.path, each.error) for each in found]


@pytest.mark.parametrize(
    ("act", "found"),
    [
        (Act("openat", 7, ("/a",), os.O_RDONLY, 0, False), [("fs.read", "open", "/a", None)]),
        (Act("open", 7, ("/a",), os.O_RDONLY, 13, True), [("fs.read", "open", "/a", "EACCES")]),
        (Act("openat", 7, ("/a",), os.O_RDONLY, 2, False), [("fs.read", "open", "/a", "ENOENT")]),
        (Act("openat", 7, ("/a",), os.O_RDONLY | os.O_DIRECTORY, 0, False), [("fs.read", "list", "/a", None)]),
        (Act("openat", 7, (ODD,), os.O_RDONLY, 0, False), [("fs.read", "open", ODD, None)]),
        (Act("openat", 7, (ODD,), os.O_RDONLY, 13, True), [("fs.read", "open", ODD, "EACCES")]),
        (Act("creat", 7, ("/a",), CREATES, 0, False), [("fs.write", "truncate", "/a", None)]),
        (Act("unlinkat", 7, ("/a",), 0, 0, False), [("fs.delete", "unlink", "/a", None)]),
        (Act("unlinkat", 7, ("/a",), AT_REMOVEDIR, 0, False), [("fs.delete", "rmdir", "/a", None)]),
        (
            Act("renameat2", 7, ("/a", "/b"), 0, 0, False),
            [("fs.delete", "rename", "/a", None), ("fs.write", "rename", "/b", None)],
        ),
        (
            Act("linkat", 7, ("/a", "/b"), 0, 13, True),
            [("fs.read", "link", "/a", "EACCES"), ("fs.write", "link", "/b", "EACCES")],
        ),
        (Act("symlinkat", 7, ("/a",), 0, 0, False), [("fs.write", "symlink", "/a", None)]),
        (Act("mkdir", 7, ("/a",), 0, 0, False), [("fs.write", "mkdir", "/a", None)]),
        (Act("mknod", 7, ("/a",), 0, 1, True), [("fs.write", "mknod", "/a", "EPERM")]),
        (Act("truncate", 7, ("/a",), 0, 0, False), [("fs.write", "truncate", "/a", None)]),
        (Act("fchmodat2", 7, ("/a",), 0, 13, True), [("fs.write", "chmod", "/a", "EACCES")]),
        (Act("lchown", 7, ("/a",), 0, 0, False), [("fs.write", "chown", "/a", None)]),
        (Act("mount", 7, (), 0, 1, True), [("kernel", "mount", "0", "EPERM")]),
        (Act("clone", 7, (), 0, 1, True), [("kernel", "unshare", "0", "EPERM")]),
        (Act("io_uring_setup", 7, (), 0, 38, True), []),  # as under strace: programs fall back
        (Act("utimensat", 7, ("/a",), 0, 0, False), []),
        (Act("openat", 7, (), 0, 14, False), []),
        (Act("rename", 7, ("/a",), 0, 2, False), []),
    ],
    ids=str,
)
def test_the_line_reads_as_strace_wrote_it(act: Act, found: list[tuple[str, str, str | None, str | None]]) -> None:
    assert seen(act) == found


def test_a_long_path_is_cut_as_strace_cuts_it() -> None:
    path = "/" + "a" * (2 * MAX_SHOWN)
    ((_, _, shown, _),) = seen(Act("openat", 7, (path,), 0, 0, False))
    assert shown is not None
    assert path.startswith(shown)
    assert len(trace_line(Act("rename", 7, (path, path), 0, 0, False), 1.5) or "") < 4096
