"""What the benchmarks compare with: each competitor in a venv of its own, from the package registries, pinned.

`python -m bench.install` prepares everything; a run does it by itself. Nothing here is a dependency of the
product. What cannot be had is left out of the run, with the reason in the results.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = HERE / ".competitors"
LIMIT = 600


@dataclass(frozen=True)
class Package:
    """A Python package in a venv of its own."""

    name: str
    requirement: str
    program: str = "python"

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    def path(self, program: str | None = None) -> Path:
        """Return one of its programs."""
        return self.folder / "bin" / (program or self.program)


TOOLS = Package("tools", "uvloop==0.22.1")  # for the load client and the upstream server
PACKAGES = (
    TOOLS,
    Package("mitmproxy", "mitmproxy==12.2.3", "mitmdump"),  # the version that the product embeds
    Package("fastmcp", "fastmcp==4.1.2"),
    Package("contextforge", "mcp-contextforge-gateway==1.1.0", "mcpgateway"),
    Package("mcp-firewall", "mcp-firewall==0.1.0", "mcp-firewall"),
)
SYSTEM = {"wrk": "wrk", "nginx": "nginx-light"}  # program, and Debian's package of it


@dataclass(frozen=True)
class Installed:
    """What is there, and why the rest is not."""

    missing: dict[str, str] = field(default_factory=dict)

    def reason(self, name: str) -> str | None:
        """Say why something is not there; None where it is."""
        return self.missing.get(name)


def _run(*argv: str | Path) -> str | None:
    """Run a command; return the end of what it said where it failed."""
    try:
        done = subprocess.run(
            [str(word) for word in argv], capture_output=True, text=True, timeout=LIMIT, check=False, env=_quiet()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return None if done.returncode == 0 else " ".join(lines[-3:])[:400] or f"exit code {done.returncode}"


def _quiet() -> dict[str, str]:
    return os.environ | {"DEBIAN_FRONTEND": "noninteractive"}


def install_package(package: Package) -> str | None:
    """Make a package's venv unless it is there as pinned; say what went wrong, if anything."""
    stamp = package.folder / ".installed"
    if stamp.exists() and stamp.read_text() == package.requirement:
        return None
    shutil.rmtree(package.folder, ignore_errors=True)
    failed = _run(sys.executable, "-m", "uv", "venv", "--quiet", "--python", sys.executable, package.folder)
    failed = failed or _run(
        sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", package.path("python"), package.requirement
    )
    if failed:
        shutil.rmtree(package.folder, ignore_errors=True)
        return f"{package.requirement} could not be installed: {failed}"
    stamp.write_text(package.requirement)
    return None


def find_program(name: str) -> str | None:
    """Return the path of a system program; nginx is not on everybody's PATH."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")


def install_program(name: str, package: str) -> str | None:
    """See that a system program is there; say why it is not, if so."""
    if find_program(name):
        return None
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return f"{name} is not installed (on Debian: sudo apt-get install {package})"
    failed = _run("apt-get", "update", "-qq") or _run(
        "apt-get", "install", "-qq", "-y", "--no-install-recommends", package
    )
    return f"{name} could not be installed: {failed}" if failed else None


def install() -> Installed:
    """Install what can be; say what is missing."""
    FOLDER.mkdir(exist_ok=True)
    missing = {}
    for name, package in SYSTEM.items():
        if failed := install_program(name, package):
            missing[name] = failed
    for each in PACKAGES:
        if failed := install_package(each):
            missing[each.name] = failed
    return Installed(missing)


def main() -> None:
    """Install, and print what came of it."""
    result = install()
    for name in (*SYSTEM, *(package.name for package in PACKAGES)):
        print(f"{name:14} {result.reason(name) or 'ready'}")


if __name__ == "__main__":
    main()
