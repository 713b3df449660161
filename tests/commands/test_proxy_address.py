"""The proxy that an agent is to go through is found, or it is said why not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.commands.proxy_address import (
    EndpointOptions,
    FoundProxy,
    ProxyOptions,
    endpoint,
    find_expected,
    find_running,
    start_proxy,
)
from proxy.errors import ConfigError
from proxy.system import run_file


def leave_note(folder: Path, mode: str = "regular", policy: str = "/p.yaml") -> None:
    running = run_file.RunningProxy(os.getpid(), "0.0.0.0:7", mode, str(folder / "ca" / "ca.pem"), policy, "v", 0.0)
    run_file.write(folder, running)


def test_a_running_proxy_is_found_by_its_note(tmp_path: Path, environment: None) -> None:
    leave_note(tmp_path)
    options = EndpointOptions(state_dir=tmp_path)
    found = find_running(options)
    way_in = endpoint(options, found)
    assert (found.address, way_in.url, found.policy) == ("0.0.0.0:7", "http://127.0.0.1:7", "/p.yaml")
    assert Path(way_in.ca).is_file()
    assert Path(way_in.bundle).is_file()
    assert find_expected(options).address == "0.0.0.0:7"


def test_a_policy_is_where_the_proxy_sees_it(tmp_path: Path, environment: None) -> None:
    leave_note(tmp_path, policy="policies/p.yaml")
    assert find_running(ProxyOptions(state_dir=tmp_path)).policy == str(Path.cwd() / "policies" / "p.yaml")


def test_where_none_runs_it_is_said_how_to_start_one(tmp_path: Path, environment: None) -> None:
    with pytest.raises(ConfigError, match="interlock up"):
        find_running(ProxyOptions(state_dir=tmp_path))
    assert find_expected(ProxyOptions(state_dir=tmp_path)).address == "127.0.0.1:8080"


@pytest.mark.parametrize("look", [find_running, find_expected])
def test_one_in_another_mode_is_not_taken(
    tmp_path: Path, environment: None, look: Callable[[ProxyOptions], FoundProxy]
) -> None:
    leave_note(tmp_path, "transparent")
    with pytest.raises(ConfigError, match="mode 'transparent'"):
        look(ProxyOptions(state_dir=tmp_path))


def test_one_that_is_named_needs_no_note_but_its_own_certificate(tmp_path: Path, environment: None) -> None:
    options = EndpointOptions("127.0.0.1:9", ca_folder=tmp_path / "elsewhere", state_dir=tmp_path / "none")
    with pytest.raises(ConfigError, match=r"there is no ca\.pem in .*elsewhere.* --ca-folder"):
        endpoint(options, find_running(options))
    with pytest.raises(ConfigError, match=r"there is no ca.pem in .*/none/ca"):
        endpoint(replace(options, ca_folder=None), find_running(options))
    assert not (tmp_path / "none").exists()
    assert endpoint(options, find_running(options), here=False).bundle == str(tmp_path / "elsewhere" / "bundle.pem")


def test_one_that_does_not_start_has_its_last_words_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = tmp_path / "python"
    failing.write_text("#!/bin/sh\necho 'error: policy.yaml: no such file' >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(failing))
    with pytest.raises(ConfigError, match=r"the proxy did not start: policy\.yaml: no such file .*up\.log"):
        start_proxy(tmp_path / "state", None)
