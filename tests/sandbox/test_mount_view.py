"""The root folder of a sandboxed server; what it stops is in test_sandbox_exec."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxy.sandbox import mount_view
from proxy.sandbox.kernel_calls import ATTR_NOEXEC, ATTR_NOSUID, ATTR_RDONLY, SandboxError

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_read_is_read_only_and_what_is_written_is_not_executed():
    assert mount_view.KINDS["read"] & ATTR_RDONLY
    assert mount_view.KINDS["write"] & ATTR_NOEXEC
    assert all(kind & ATTR_NOSUID for kind in mount_view.KINDS.values())


def test_a_link_in_the_place_of_a_file_is_noticed(tmp_path: Path):
    (tmp_path / "link").symlink_to("/etc/hostname")
    with pytest.raises(SandboxError, match="another file than a moment ago"):
        mount_view._open(str(tmp_path / "link"))
    with pytest.raises(SandboxError, match="No such file"):
        mount_view._open(str(tmp_path / "none"))


def test_a_given_file_is_never_written_through_a_link(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="File exists"):
        mount_view._write(str(tmp_path / "link"), "x")
    assert not (tmp_path / "target").exists()
