"""Packaged files, in a wheel or in a checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.policy.load import load_policy
from proxy.system import package_data

ROOT = Path(__file__).resolve().parents[2]


def test_a_checkout_has_its_policies_at_the_top() -> None:
    assert package_data.policies_dir() == ROOT / "policies"
    assert package_data.sql_dir() == ROOT / "sql"


def test_a_wheel_has_them_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "_data" / "policies").mkdir(parents=True)
    monkeypatch.setattr(package_data, "_PACKAGE", tmp_path)
    assert package_data.policies_dir() == tmp_path / "_data" / "policies"


def test_the_default_policy_loads() -> None:
    assert load_policy(package_data.policies_dir() / "default.yaml").version
