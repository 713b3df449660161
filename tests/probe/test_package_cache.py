"""What package runners need inside a sinkhole."""

from __future__ import annotations

from pathlib import Path

from proxy.probe.package_cache import PackageCache, find_package_cache


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
