"""The section `sandbox:` of a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from proxy.errors import PolicyError
from proxy.policy.load import load_policy

if TYPE_CHECKING:
    from pathlib import Path

POLICY = """
version: 1
default: allow
sandbox:
  files: {extends: [node], read: [$ROOTS], mode: shadow}
  "f*": {write: [$TMP], on_violation: withhold}
"""


def test_a_server_gets_the_profiles_that_fit_its_name(tmp_path: Path):
    (tmp_path / "p.yaml").write_text(POLICY)
    sandboxes = load_policy(tmp_path / "p.yaml").sandboxes
    both = sandboxes.for_server("files")
    assert both is not None
    assert (both.read, both.write, both.extends) == (["$ROOTS"], ["$TMP"], ["node"])
    # The stricter of two: no file can switch off another one's sandbox.
    assert (both.enforced, both.violation) == (True, "withhold")
    assert sandboxes.for_server("git") is None


def test_a_file_that_only_records_has_profiles_that_only_record(tmp_path: Path):
    (tmp_path / "p.yaml").write_text(POLICY + "mode: shadow\n")
    found = load_policy(tmp_path / "p.yaml").sandboxes.for_server("f")
    assert found is not None
    assert found.mode == "shadow"


def test_a_bad_profile_is_told_with_its_line(tmp_path: Path):
    (tmp_path / "p.yaml").write_text("version: 1\nsandbox:\n  files: {read: [here]}\n")
    with pytest.raises(PolicyError, match=r"p\.yaml:3:18: .*write a full path"):
        load_policy(tmp_path / "p.yaml")
