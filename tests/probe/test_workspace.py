"""The canary home is there and is removed; package runners find their caches."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.probe.workspace import PackageCache, Workspace, find_package_cache, home_path


def test_what_arguments_point_at_is_there_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stage = Workspace()
    samples = stage.samples()
    home = stage.home
    those = (samples.file, samples.other_file, samples.folder, samples.repository)
    assert all((home.folder / Path(path).relative_to(home.path)).exists() for path in those)
    assert not Path(samples.new_file).exists()
    assert stage.context().canaries[samples.file].secret is False
    stage.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_word_may_ask_for_the_homes_folders() -> None:
    stage = Workspace()
    try:
        assert stage.fill_in("--dir={documents}/x") == f"--dir={stage.home.documents}/x"
        assert stage.fill_in("{other}") == "{other}"
    finally:
        stage.remove()


def test_a_runner_finds_what_it_fetched_before_and_fetches_nothing(tmp_path: Path) -> None:
    (tmp_path / ".npm").mkdir()
    kept = find_package_cache(["/usr/bin/npx", "-y", "x"], {}, tmp_path)
    assert kept.folders == (str(tmp_path / ".npm"),)
    assert kept.variables
    assert kept.variables["npm_config_cache"] == str(tmp_path / ".npm")
    assert kept.variables["npm_config_offline"] == "true"
    assert "UV_CACHE_DIR" not in kept.variables


def test_where_it_is_kept_elsewhere_it_is_found_there(tmp_path: Path) -> None:
    kept = find_package_cache(["uvx", "x"], {"UV_CACHE_DIR": str(tmp_path)}, Path("/nowhere"))
    assert kept.folders == (str(tmp_path),)


def test_other_commands_get_nothing(tmp_path: Path) -> None:
    (tmp_path / ".npm").mkdir()
    assert find_package_cache(["node", "x.js"], {}, tmp_path) == PackageCache()


def test_a_home_is_where_homes_are_and_takes_nobodys_place(tmp_path: Path) -> None:
    homes = tmp_path / "home"
    assert home_path(tmp_path, homes) == tmp_path / "alex"
    homes.mkdir()
    assert home_path(tmp_path, homes) == homes / "alex"
    (homes / "alex").mkdir()
    assert home_path(tmp_path, homes) == homes / "alex2"


def test_no_name_of_the_stage_tells_a_server_where_it_is() -> None:
    stage = Workspace()
    try:
        words = f"{stage.home.path} {stage.run} {stage.home.folder}".lower()
        assert not any(word in words for word in ("probe", "interlock", "sandbox", "canary"))
    finally:
        stage.remove()
