"""A policy as one text: read once, one spelling, nothing outside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.core.model import Call, Outcome
from proxy.errors import PolicyError
from proxy.rollout import bundle as module
from proxy.rollout.bundle import Bundle, parse_bundle, read_bundle
from tests.rollout.fixtures import bundle

DENY = "version: 1\ndefault: allow\nrules: [{id: no-shell, action: deny, tools: [shell]}]\n"


def outcome(made: Bundle, tool: str) -> Outcome:
    return made.compile("v1-x").decide(Call("tools/call", "s", "a", tool, {})).outcome


def test_a_file_is_read_with_what_it_includes(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "shared.yaml").write_text(DENY)
    (tmp_path / "top" / "own.yaml").write_text("version: 1\ndefault: allow\ninclude: [../shared.yaml]\n")
    made = read_bundle(tmp_path / "top" / "own.yaml")
    assert (sorted(made.files), made.entry) == (["shared.yaml", "top/own.yaml"], "top/own.yaml")
    assert outcome(made, "shell") is Outcome.DENY
    assert parse_bundle(made.text) == made


def test_a_folder_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(DENY)
    (tmp_path / "b.yml").write_text("version: 1\nrules: [{id: no-rm, action: deny, tools: [rm]}]\n")
    (tmp_path / "notes.txt").write_text("secret")
    made = read_bundle(tmp_path)
    assert (sorted(made.files), made.entry) == (["a.yaml", "b.yml"], ".")
    assert (outcome(made, "shell"), outcome(made, "rm"), outcome(made, "ls")) == (
        Outcome.DENY,
        Outcome.DENY,
        Outcome.ALLOW,
    )


def test_a_profile_counts_beside_it(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "policy.yaml").write_text("version: 1\ndefault: allow\n")
    (tmp_path / "profile.yaml").write_text(DENY)
    made = read_bundle(tmp_path / "own" / "policy.yaml", [tmp_path / "profile.yaml"])
    assert made.beside == ("profile.yaml",)
    assert outcome(made, "shell") is Outcome.DENY


def test_what_changes_after_the_reading_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(DENY)
    made = read_bundle(file)
    digest = made.digest
    file.write_text("version: 1\ndefault: allow\n")
    assert (made.digest, outcome(made, "shell")) == (digest, Outcome.DENY)


def test_a_linked_folder_is_read_as_what_it_leads_to_now(tmp_path: Path) -> None:
    """As Kubernetes mounts a ConfigMap: files that are links through a link to a folder."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "policy.yaml").write_text(DENY)
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "policy.yaml").symlink_to("..data/policy.yaml")
    made = read_bundle(tmp_path)
    (tmp_path / "policy.yaml").unlink()
    (tmp_path / "policy.yaml").symlink_to("/etc/passwd")
    assert list(made.files) == ["policy.yaml"]
    assert outcome(made, "shell") is Outcome.DENY


def test_a_link_to_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").symlink_to("/etc/passwd")
    with pytest.raises(PolicyError, match=r"policy\.yaml"):
        read_bundle(tmp_path / "policy.yaml")


def test_a_huge_policy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1 << 10)
    (tmp_path / "policy.yaml").write_text(DENY + "#" * 2000)
    with pytest.raises(PolicyError, match="more than"):
        read_bundle(tmp_path / "policy.yaml")


def test_problems_are_named_by_the_files_of_the_bundle() -> None:
    with pytest.raises(PolicyError) as caught:
        Bundle({"x/policy.yaml": "version: 1\nrules: [{id: a}]\n"}, "x/policy.yaml").sources()
    assert str(caught.value).startswith("x/policy.yaml:2:")
    assert "/tmp" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"../policy.yaml": DENY}},
        {"files": {"/etc/policy.yaml": DENY}},
        {"files": {"a/./b.yaml": DENY}},
        {"files": {"a//b.yaml": DENY}},
        {"files": {"a\0.yaml": DENY}},
        {"files": {"policy.yaml": 1}},
        {"files": {f"{n}.yaml": "" for n in range(101)}},
        {"files": {}},
        {"entry": "none.yaml"},
        {"entry": "../x"},
        {"beside": ["none.yaml"]},
        {"format": "interlock-policy-2"},
        {"more": 1},
    ],
)
def test_what_is_no_bundle_is_refused(change: dict[str, object]) -> None:
    value = {**json.loads(bundle("shell").text), **change}
    with pytest.raises(PolicyError):
        parse_bundle(json.dumps(value, sort_keys=True, separators=(",", ":")))


def test_another_spelling_is_refused() -> None:
    with pytest.raises(PolicyError, match="spelling"):
        parse_bundle(bundle("shell").text + " ")
    for text in ("", "[" * 100_000, "null", "{}"):
        with pytest.raises(PolicyError):
            parse_bundle(text)
