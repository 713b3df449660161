"""The wheel, installed as the README says, runs: policies and SQL are inside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tests.support.harness import REPOSITORY, seed_cache
from tests.support.timeouts import PATIENCE

CONSOLE = REPOSITORY / "proxy" / "console"
WEB = {".html", ".css", ".js", ".svg"}
UV = Path(sys.executable).with_name("uv")


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, cwd=REPOSITORY)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its command, installed by `uv tool install`."""
    folder = tmp_path_factory.mktemp("tools")
    locked = ["--python", sys.executable, "--constraints", REPOSITORY / "requirements.lock"]
    places = {"UV_TOOL_DIR": str(folder), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    run(UV, "tool", "install", "--quiet", *locked, wheel, cwd=folder, env={**os.environ, **places})
    return folder / "bin"


def test_the_wheel_holds_the_packages_the_policies_and_the_sql(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    for expected in (
        "mcp_interlock/__init__.py",
        "proxy/cli.py",
        "proxy/agent/node_proxy.cjs",
        "addons/mcp.py",
        "proxy/_data/policies/default.yaml",
        "proxy/_data/sql/log.sql",
        "proxy/_data/sql/postgres_migrations.sql",
        "proxy/_data/sql/shared_calls.sql",
        "proxy/_data/sql/queries/events_postgres.sql",
        "proxy/_data/sql/queries/proposals.sql",
        "proxy/_data/sql/audit_queries.sql",
        "proxy/_data/sql/postgres/0001_two_phase.sql",
        "proxy/_data/sql/sqlite/0001_two_phase.sql",
        *(f"proxy/console/{file.relative_to(CONSOLE)}" for file in CONSOLE.rglob("*.*") if file.suffix in WEB),
    ):
        assert expected in names
    # Whatever is beside the code in the repository is beside it in the wheel.
    for top in ("mcp_interlock", "proxy", "addons"):
        kept = run("git", "ls-files", top, cwd=REPOSITORY).split()
        assert set(kept) <= set(names)
    for top in ("policies", "sql"):
        assert {f"proxy/_data/{name}" for name in run("git", "ls-files", top, cwd=REPOSITORY).split()} <= set(names)
    assert "proxy/console/static/console.css" in names
    assert "mcp_interlock-0.1.0.data/data/share/man/man1/interlock.1" in names
    assert not [name for name in names if name.startswith("tests/")]


def test_its_command_tests_the_policy_that_came_with_it(installed: Path, tmp_path: Path):
    assert run(installed / "interlock", "--version", cwd=tmp_path).startswith("interlock 0.")
    assert "tests passed" in run(installed / "interlock", "policy", "test", cwd=tmp_path)


def test_pip_installs_it_beside_what_it_needs(wheel: Path, installed: Path, tmp_path: Path):
    """As pipx does in an environment of its own; what pip would fetch is that of `installed`."""
    tool = installed.parent / "mcp-interlock" / "bin" / "python"
    needed = run(tool, "-c", "import orjson; print(orjson.__path__[0])", cwd=tmp_path).strip()
    target = tmp_path / "target"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", target]
    run(*pip, "--disable-pip-version-check", wheel, cwd=tmp_path)
    places = {"PYTHONPATH": f"{target}{os.pathsep}{Path(needed).parent}"}
    for flag in ("--version", "--help"):
        said = run(target / "bin" / "interlock", flag, cwd=tmp_path, env={**os.environ, **places})
        assert "interlock" in said


def test_its_proxy_starts_and_stops(installed: Path, tmp_path: Path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    command = [installed / "interlock", "up", "--listen", "127.0.0.1:0", "--state-dir", tmp_path / "state"]
    command += ["--console-listen", "127.0.0.1:0"]
    seed_cache(tmp_path / "state")
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=out, stderr=out)
    with process:
        note = tmp_path / "state" / "run.json"
        deadline = time.monotonic() + 60
        while not note.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        try:
            running = json.loads(note.read_text())
            assert running["policy"].endswith("_data/policies/profiles/balanced.yaml")
            with urllib.request.urlopen(f"{running['console']}/login", timeout=PATIENCE) as page:
                assert b"Interlock console" in page.read()
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, (tmp_path / "out").read_text()
