"""Checks of the state folder: permissions, disk space, and the CA."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.doctor.findings import CheckResult, fail, ok, warn
from proxy.errors import ConfigError
from proxy.identity.ca import Authority, holds

if TYPE_CHECKING:
    from collections.abc import Iterator

# With less, the audit log may soon not be writable, and calls are then refused.
LEAST_ROOM = 64 << 20
LEAST_FILES = 1000
SOON = dt.timedelta(days=30)
OTHERS = stat.S_IRWXG | stat.S_IRWXO
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
PRIVATE = ("keys", "log", "store", "checkpoints")


def permissions(path: Path) -> Iterator[CheckResult]:
    try:
        about = path.stat()
    except FileNotFoundError:
        yield warn("state folder", f"{path} does not exist", "`interlock up` creates it; or give --state-dir")
        return
    if not path.is_dir():
        yield fail("state folder", f"{path} is not a folder", "move it away, or give another --state-dir")
    elif not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield fail("state folder", f"this user may not write to {path}", f"sudo chown -R $(id -un) {path}")
    elif about.st_mode & OTHERS_WRITE:
        yield fail("state folder", f"others may write to {path} ({about.st_mode & 0o777:o})", f"chmod go-w {path}")
    else:
        open_files = list(_open_files(path))
        for file in open_files:
            yield fail("state folder", f"others may read or write {file}", f"chmod go-rwx {file}")
        if not open_files:
            yield ok("state folder", f"{path}; only its owner can read the secrets in it")


def _open_files(path: Path) -> Iterator[Path]:
    secret = [Authority(path).key_file, *(file for name in PRIVATE for file in (path / name).rglob("*"))]
    for file in filter(Path.is_file, secret):
        # Public keys are for auditors, and lock files are empty: both may be readable.
        public = "audit-public" in file.parts or file.suffix == ".lock"
        # A folder that only its owner may enter protects its files, whatever their own modes.
        closed = any(
            not parent.stat().st_mode & OTHERS for parent in (file, *file.parents) if parent.is_relative_to(path)
        )
        if not public and not closed:
            yield file


def disk_space(path: Path, log_limit: int) -> Iterator[CheckResult]:
    folder = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.is_dir())
    free, files = shutil.disk_usage(folder).free, os.statvfs(folder)
    said = f"{free >> 20} MiB are free for {folder}"
    mend = "free some space: calls are refused if their events cannot be written"
    if free < LEAST_ROOM:
        yield fail("disk", said, mend)
    elif files.f_files and files.f_favail < LEAST_FILES:
        yield fail("disk", f"{said}, but only {files.f_favail} more files can be created", mend)
    elif free < log_limit:
        yield warn("disk", f"{said}, less than audit_log_limit ({log_limit >> 20} MiB)", f"{mend}; or lower the limit")
    else:
        yield ok("disk", said)


def ca(state_dir: Path, now: dt.datetime | None = None) -> Iterator[CheckResult]:
    """Check that the CA exists, is intact, valid for long enough, and in its bundle."""
    files, now = Authority(state_dir), now or dt.datetime.now(dt.UTC)
    if not files.key_file.exists():
        yield warn("ca", f"there is no CA at {files.key_file}", "`interlock up` creates one")
        return
    try:
        certificate = files.look()
    except ConfigError as error:
        yield fail("ca", str(error), "agents must then trust the new CA: `interlock ca export`")
        return
    ends = certificate.not_valid_after_utc
    anew = f"stop the proxy, delete {files.key_file}, start it, and give agents the new certificate"
    if not certificate.not_valid_before_utc <= now <= ends:
        yield fail("ca", f"its certificate is not valid now (it ends {ends:%Y-%m-%d})", anew)
    elif ends - now < SOON:
        yield warn("ca", f"its certificate expires in {(ends - now).days} days", anew)
    elif not files.bundle_file.is_file() or not holds(files.bundle_file, certificate):
        yield warn("ca", f"{files.bundle_file} does not contain it", "restart the proxy, which writes it")
    else:
        yield ok("ca", f"valid until {ends:%Y-%m-%d}")


def newest_file(state_dir: Path) -> float | None:
    """Return the newest change of the audit logs."""
    times = []
    for file in (state_dir / "log").glob("*.db"):
        try:
            times.append(file.stat().st_mtime)
        except OSError:
            continue  # a log may be moved to the store at any time
    return max(times, default=None)
