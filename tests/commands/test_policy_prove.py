"""`interlock policy diff --prove` and `--replay`."""

import json

import pytest
from typer.testing import CliRunner

from proxy.commands.command_tree import app
from tests.commands.test_policy_learn import state  # noqa: F401  a fixture

WIDE = "version: 1\nrules: [{id: r, action: allow, tools: [read_file], when: {arg: path, path_under: /srv}}]\n"
NARROW = WIDE.replace("/srv", "/srv/app")


@pytest.fixture
def files(tmp_path):
    for name, text in (
        ("wide", WIDE),
        ("narrow", NARROW),
        ("limits", NARROW + "limits: [{id: l, count: 1, within: 1h}]\n"),
    ):
        (tmp_path / f"{name}.yaml").write_text(text)
    return {name: str(tmp_path / f"{name}.yaml") for name in ("wide", "narrow", "limits")}


def run(*words):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["policy", "diff", *map(str, words)])


def test_a_narrower_policy_is_proven_and_exit_code_0(files):
    result = run("--prove", files["wide"], files["narrow"])
    assert result.exit_code == 0, result.output
    assert "Proven: the second lets nothing through" in result.stdout


def test_a_wider_one_has_a_witness(files):
    result = run("--prove", "--json", files["narrow"], files["wide"])
    proof = json.loads(result.stdout.splitlines()[-1])
    assert (result.exit_code, proof["lets_more_through"]) == (3, "yes")
    assert proof["witness"]["arguments"]["path"].startswith("/srv")


def test_what_rules_cannot_show_is_unknown(files):
    result = run("--prove", files["limits"], files["narrow"])
    assert result.exit_code == 3
    assert "limits differ" in result.stdout


def test_recorded_calls_are_decided_by_the_second(files, state):  # noqa: F811
    result = run("--replay", "--state-dir", state, "--json", files["wide"], files["narrow"])
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["call_id"] for line in lines if line["kind"] == "change"] == ["c2", "c3"]
