"""`interlock console`: a link to open, or why there is none."""

from __future__ import annotations

import os
import stat
import webbrowser
from pathlib import Path

import pytest

from proxy.identity.token_file import OperatorTokens
from proxy.system import run_file
from proxy.system.run_file import RunningProxy
from tests.commands.conftest import Run, complaint

URL = "http://127.0.0.1:8090"


def running(folder: Path, console: str | None = URL) -> None:
    folder.mkdir(exist_ok=True)
    OperatorTokens(folder).ensure()
    run_file.write(folder, RunningProxy(os.getpid(), "127.0.0.1:1", "regular", "c", "p", "v", 0.0, console=console))


def test_it_prints_a_link(run: Run, tmp_path: Path) -> None:
    running(tmp_path / "state")
    assert run("console", "--print").stdout.startswith(f"{URL}/login#ill_")


def test_it_opens_a_private_page_that_leads_there(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running(tmp_path / "state")
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    done = run("console")
    assert done.stdout == ""
    (url,) = opened
    # Not the link itself: what a program is started with can be read by everybody on the machine.
    assert "ill_" not in url
    page = tmp_path / "state" / "console_open.html"
    assert url == page.as_uri()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert f"{URL}/login#ill_" in page.read_text()


def test_where_no_browser_starts_the_link_is_printed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running(tmp_path / "state")
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    assert "/login#ill_" in run("console").stdout


def test_why_there_is_no_link(run: Run, tmp_path: Path) -> None:
    assert "no proxy runs" in complaint(run("console"))
    running(tmp_path / "state", None)
    assert "without a console" in complaint(run("console"))
    running(tmp_path / "state")
    OperatorTokens(tmp_path / "state").revoke("operator")
    assert URL in complaint(run("console"))
