"""`interlock policy show` and `diff`."""

import json

import pytest
from typer.testing import CliRunner

from proxy.commands.policy import app
from proxy.errors import PolicyError
from proxy.system.package_data import PROFILES


def call(*words):
    return CliRunner().invoke(app, words)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_shown_as_one_file_that_does_the_same(tmp_path, profile):
    shown = call("show", "--profile", profile)
    (tmp_path / "one.yaml").write_text(shown.stdout)
    compared = call("diff", profile, str(tmp_path / "one.yaml"))
    assert (compared.exit_code, compared.stdout.split()[-3:]) == (0, ["do", "the", "same"])


def test_differences_are_told_in_words_and_as_json():
    told = call("diff", "balanced", "strict")
    assert told.exit_code == 3
    assert "+ rule strict-recursive-delete: deny, " in told.stdout
    rows = [json.loads(line) for line in call("diff", "--json", "balanced", "strict").stdout.splitlines()]
    assert {"kind": "egress", "name": "", "field": "private", "before": "allow", "after": "deny"} in rows


def test_an_unknown_profile_is_told_with_the_three_names():
    for words in (("show", "--profile", "paranoid"), ("diff", "balanced", "paranoid")):
        error = call(*words).exception
        assert isinstance(error, PolicyError)
        assert "watch, balanced or strict" in str(error)
