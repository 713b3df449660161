"""Paths are resolved in the program's own view: its root folder, its mounts, its working folder and its /proc."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from proxy.sandbox.kernel_calls import MS_PRIVATE, MS_REC, mount
from tests.sandbox.supervised import limits, supervised

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts are root's; the sandbox's own tests mount as anybody")
def test_a_path_leads_where_it_leads_the_program(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    for name in ("shown", "covered"):
        (folder / name).mkdir()
        (folder / name / "a").write_text(name)

    def own_mounts() -> None:
        os.unshare(os.CLONE_NEWNS)
        mount(None, "/", None, MS_REC | MS_PRIVATE)
        mount(str(folder / "shown"), str(folder / "covered"), None, 0x1000)

    with supervised(limits(folder), preexec_fn=own_mounts) as server:
        server.supervisor.begin_call("a", frozenset({str(folder / "covered")}))
        read = "print(open(path).read())"
        assert server.run(read, path=str(folder / "covered" / "a")) == "shown"
        assert server.run(read, path=str(folder / "shown" / "a")) == "EACCES"
        relative = "os.chdir(path); print(open('a').read(), os.read(os.open('a', 0, dir_fd=os.open('.', 0)), 9))"
        assert server.run(relative, path=str(folder / "covered")) == "shown b'shown'"
    assert (folder / "covered" / "a").read_text() == "covered"


def test_the_program_itself_is_meant_by_proc_self(tmp_path: Path) -> None:
    with supervised(limits(tmp_path.resolve())) as server:
        told = server.run("print(open('/proc/self/status').read().split('Pid:')[1].split()[0], os.getpid())")
        of_program, itself = told.split()
    assert of_program == itself != str(os.getpid())
