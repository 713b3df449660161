from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from proxy.errors import TracingError
from proxy.sandbox.server_process import Launch
from proxy.trace import tracer
from proxy.trace.tracer import TracePipe, find_strace, options, under_strace


def fake_strace(folder: Path, script: str) -> dict[str, str]:
    file = folder / "strace"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return {"PATH": str(folder)}


def test_strace_is_found_where_it_works() -> None:
    assert find_strace(os.environ).endswith("/strace")


def test_a_missing_strace_is_told_as_that(tmp_path: Path) -> None:
    with pytest.raises(TracingError, match="strace is not installed; install the package strace"):
        find_strace({"PATH": str(tmp_path)})


REFUSED = "echo 'strace: attach: ptrace(PTRACE_SEIZE, 5): Operation not permitted' >&2; exit 1"


def test_a_refused_ptrace_is_told_with_what_to_allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scope = tmp_path / "scope"
    scope.write_text("3\n")
    monkeypatch.setattr(tracer, "PTRACE_SCOPE", scope)
    with pytest.raises(TracingError) as caught:
        find_strace(fake_strace(tmp_path, REFUSED))
    said = str(caught.value)
    assert "ptrace is refused" in said
    assert "--cap-add=SYS_PTRACE" in said
    assert "kernel.yama.ptrace_scope is 3, and must be 1 or 0" in said
    assert "\n" not in said


def test_where_the_kernel_has_no_such_setting_it_is_not_spoken_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracer, "PTRACE_SCOPE", tmp_path / "none")
    with pytest.raises(TracingError) as caught:
        find_strace(fake_strace(tmp_path, REFUSED))
    assert "yama" not in str(caught.value)


def test_another_failure_is_told_in_straces_words(tmp_path: Path) -> None:
    with pytest.raises(TracingError, match=r"strace does not work here \(strace: invalid option\)"):
        find_strace(fake_strace(tmp_path, "echo 'strace: invalid option' >&2; exit 1"))


def test_an_strace_that_runs_and_traces_nothing_does_not_do(tmp_path: Path) -> None:
    with pytest.raises(TracingError):
        find_strace(fake_strace(tmp_path, "exit 0"))


def test_an_strace_that_hangs_does_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracer, "CHECK_SECONDS", 0.2)
    with pytest.raises(TracingError, match="does not run"):
        find_strace(fake_strace(tmp_path, "exec /bin/sleep 30"))


def test_the_server_keeps_its_words() -> None:
    launch = under_strace(Launch("/bin/x", ("x", "-o", "--", "y")), "/usr/bin/strace", Path("/run/lines"))
    assert launch.program == "/usr/bin/strace"
    assert launch.argv[-7:] == ("-o", "/run/lines", "--", "x", "-o", "--", "y")


@pytest.mark.parametrize(
    ("environ", "given"), [({"A": "b"}, "TZ"), ({"TZ": "Asia/Tokyo"}, "TZ=Asia/Tokyo"), ({"TZ": ""}, "TZ=")]
)
def test_strace_has_a_time_zone_of_its_own_and_the_server_keeps_its(environ: dict[str, str], given: str) -> None:
    launch = under_strace(Launch("/bin/x", ("x",), environ=environ), "/usr/bin/strace", Path("/run/lines"))
    assert launch.environ == {**environ, "TZ": "UTC0"}
    assert launch.argv[launch.argv.index("-E") + 1] == given


def test_io_uring_is_refused_and_unknown_calls_are_tolerated() -> None:
    asked = options(["openat", "brand_new"])
    assert "inject=io_uring_setup:error=ENOSYS" in asked
    assert "inject=ptrace:error=EPERM" in asked
    assert any(word.startswith("trace=?openat,?brand_new,?io_uring_setup,?ptrace,") for word in asked)
    assert "--seccomp-bpf" in asked


def test_the_channel_is_ours_alone_and_loses_its_name() -> None:
    channel = TracePipe()
    mode = channel.path.stat().st_mode
    assert stat.S_ISFIFO(mode)
    assert stat.S_IMODE(mode) == 0o600
    assert stat.S_IMODE(channel.path.parent.stat().st_mode) == 0o700
    assert not os.get_inheritable(channel.descriptor)
    writing = os.open(channel.path, os.O_WRONLY)
    channel.hide()
    channel.hide()
    assert not channel.path.parent.exists()
    os.write(writing, b"still there")
    assert os.read(channel.descriptor, 99) == b"still there"
    os.close(writing)
    channel.close()
