"""Checks of the machine: Python, the clock, strace, and kernel features."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.confine.kernel_settings import explain
from proxy.doctor.findings import CheckResult, fail, ok, warn
from proxy.errors import TracingError
from proxy.sandbox.namespaces import PROGRAMS
from proxy.trace.tracer import find_strace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OLDEST_PYTHON = (3, 12)
EARLIEST, LATEST = 1_750_000_000, 4_102_444_800  # June 2025, and the year 2100
DAY = 86_400.0
WATCHED_SECONDS = 0.25
TOLERATED = 0.1
TRY_SECONDS = 10.0
LANDLOCK_CREATE_RULESET, LANDLOCK_VERSION = 444, 1
SECCOMP = Path("/proc/sys/kernel/seccomp/actions_avail")
_UNSHARE = "import os; os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNET | os.CLONE_NEWNS | os.CLONE_NEWPID)"


def python(version: tuple[int, ...] = sys.version_info[:3]) -> Iterator[CheckResult]:
    said = f"Python {'.'.join(map(str, version))} on {platform.system()} {platform.release()}, {platform.machine()}"
    if version < OLDEST_PYTHON:
        yield fail("python", said, f"install Interlock with Python {'.'.join(map(str, OLDEST_PYTHON))} or newer")
    elif platform.system() != "Linux":
        mend = "the proxy, `interlock run`, exec, confine and probe need Linux (docs/operations.md, Without Linux)"
        yield warn("python", said, mend)
    else:
        yield ok("python", said)


def clock(newest: float | None = None, now: float | None = None) -> Iterator[CheckResult]:
    """Check the clock: by the year, by its pace, and against the `newest` file in the state folder."""
    now = time.time() if now is None else now
    mend = "set the clock and use NTP (timedatectl set-ntp true): audit events carry its time"
    said = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if not EARLIEST < now < LATEST:
        yield fail("clock", f"it says {said}", mend)
    # A log from the future: the clock was set back, and new events would sort before older ones.
    elif newest is not None and newest > now + DAY:
        when = time.strftime("%Y-%m-%d", time.gmtime(newest))
        yield warn("clock", f"it says {said}, but files in the state folder are from {when}", mend)
    else:
        # The monotonic clock cannot be set: a difference means that somebody or something steps the wall clock.
        wall, steady = time.time(), time.monotonic()
        time.sleep(WATCHED_SECONDS)
        off = (time.time() - wall) - (time.monotonic() - steady)
        jumped = f"it says {said}, and jumped by {off:+.2f} s during the check"
        yield warn("clock", jumped, mend) if abs(off) > TOLERATED else ok("clock", said)


def strace(setting: str, environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check whether strace works the way `interlock run` uses it."""
    if setting == "off":
        yield ok("strace", "not checked: the setting trace is off")
        return
    try:
        path = find_strace(environ)
    except TracingError as error:
        made = fail if setting == "require" else warn
        yield made("strace", str(error), "until then `interlock run` cannot watch what servers do (docs/behaviour.md)")
    else:
        yield ok("strace", f"{path} works")


def kernel(environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check what `interlock confine` and `interlock probe` need from the kernel."""
    if sys.platform != "linux":
        return  # the check of Python says so
    yield _namespaces()
    yield _program("nft", "nftables", environ)
    yield _program("ip", "iproute2", environ)
    if SECCOMP.exists():
        yield ok("seccomp", "the kernel filters system calls")
    else:
        yield warn("seccomp", "the kernel cannot filter system calls", "use a kernel with CONFIG_SECCOMP_FILTER")
    yield _landlock()


def _namespaces() -> CheckResult:
    # In another process: unshare cannot be undone. By trying it, since no single kernel setting says whether it works.
    try:
        tried = subprocess.run(  # noqa: S603  this interpreter
            [sys.executable, "-Sc", _UNSHARE], check=False, capture_output=True, timeout=TRY_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return warn("namespaces", f"cannot try them: {error}", "try `unshare -Urn true`")
    if tried.returncode == 0:
        return ok("namespaces", "a process can create its own namespaces")
    last = tried.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no reason given"]
    mend = "until then `interlock confine` and `interlock probe` do not start anything (docs/confine.md)"
    return warn("namespaces", explain(f"namespaces: {last[0].rpartition('] ')[2]}"), mend)


def _program(name: str, package: str, environ: Mapping[str, str]) -> CheckResult:
    found = shutil.which(name, path=f"{environ.get('PATH', '')}:{PROGRAMS}")
    if found:
        return ok(name, found)
    return warn(name, f"{name} is not installed", f"install it, for example: sudo apt-get install {package}")


def _landlock() -> CheckResult:
    # glibc has no wrapper for this system call; with these arguments it only returns the version.
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION)
    if version > 0:
        return ok("landlock", f"version {version}, which sandboxes of `interlock run` use")
    number = ctypes.get_errno()
    why = "not in this kernel" if number == errno.ENOSYS else os.strerror(number)
    return ok("landlock", f"not available ({why}): a sandbox of `interlock run` would not be complete")
