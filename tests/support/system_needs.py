"""What the machine must have for some tests; without it they are skipped, loudly."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.support.timeouts import PATIENCE


def _can_unshare() -> bool:
    if not shutil.which("unshare"):
        return False
    tried = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "--mount", "true"],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return tried.returncode == 0


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skip a test where one of `programs` is not installed, and say what to install."""
    missing = [program for program in programs if not shutil.which(program)]
    return pytest.mark.skipif(
        bool(missing), reason=f"SKIPPED FOR WANT OF {missing}: run scripts/system-packages as root"
    )


needs_namespaces = pytest.mark.skipif(
    not _can_unshare(), reason="SKIPPED FOR WANT OF user and network namespaces (unshare -Urn)"
)
