"""The proxy that an agent is to go through is found, or it is said why not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proxy import runfile
from proxy.commands.entrance import Asked, find
from proxy.errors import ConfigError


def leave_note(folder: Path, mode: str = "regular") -> None:
    running = runfile.Running(os.getpid(), "0.0.0.0:7", mode, str(folder / "ca" / "ca.pem"), "/p.yaml", "v", 0.0)
    runfile.write(folder, running)


def test_a_running_proxy_is_found_by_its_note(tmp_path: Path, environment: None) -> None:
    leave_note(tmp_path)
    found = find(Asked(), tmp_path, None, must_run=True)
    assert (found.address, found.entrance.url, found.policy) == ("0.0.0.0:7", "http://127.0.0.1:7", "/p.yaml")
    assert Path(found.entrance.ca).is_file()
    assert Path(found.entrance.bundle).is_file()


def test_where_none_runs_it_is_said_how_to_start_one(tmp_path: Path, environment: None) -> None:
    with pytest.raises(ConfigError, match="interlock up"):
        find(Asked(), tmp_path, None, must_run=True)
    assert find(Asked(), tmp_path, None, must_run=False).address == "127.0.0.1:8080"


def test_one_in_another_mode_is_not_taken(tmp_path: Path, environment: None) -> None:
    leave_note(tmp_path, "transparent")
    with pytest.raises(ConfigError, match="mode 'transparent'"):
        find(Asked(), tmp_path, None, must_run=True)


def test_one_that_is_named_needs_no_note_and_no_state_folder(tmp_path: Path, environment: None) -> None:
    found = find(Asked("127.0.0.1:9", tmp_path / "elsewhere"), tmp_path / "none", None, must_run=True)
    assert found.entrance.bundle == str(tmp_path / "elsewhere" / "bundle.pem")
    assert not (tmp_path / "none").exists()
