"""A policy's own detectors and suppressions: read with the rest of the file, checked, merged and applied."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.core.model import Call
from proxy.errors import PolicyError
from proxy.policy.decide import CompiledPolicy
from proxy.policy.detector_rules import lint_detectors
from proxy.policy.load import load_policy, load_sources
from proxy.redact import builtin

BOOK = builtin()
HEAD = "version: 1\ndefault: allow\n"
BADGE = "  - {id: custom.badge, description: Badge, regex: 'BADGE-\\d{6}'}\n"
RULE = "rules:\n  - {id: scrub, action: redact, detectors: [secrets, custom.badge]}\n"
PRINT = "3f9a52c0d1e4b786"


def load(tmp_path: Path, *texts: str) -> CompiledPolicy:
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.yaml").write_text(text)
    return load_policy(tmp_path, BOOK)


def refused(tmp_path: Path, *texts: str) -> str:
    with pytest.raises(PolicyError) as caught:
        load(tmp_path, *texts)
    return str(caught.value).replace(f"{tmp_path}/", "")


def detector(**change: object) -> str:
    fields = {"id": "custom.badge", "description": "Badge", "regex": "'BADGE-\\d{6}'", **change}
    body = "".join(f"    {name}: {value}\n" for name, value in fields.items())
    return HEAD + "detectors:\n  -\n" + body


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (detector(regex="'(?=x)y'"), "0.yaml:7:5", "no look-around"),
        (detector(regex="'a*'"), "0.yaml:7:5", "matches the empty string"),
        (detector(regex="'a{2000}'"), "0.yaml:7:5", "RE2 refuses"),
        (detector(group=1), "0.yaml:7:5", "group 1 is not in the regex"),
        (detector(id="badge"), "0.yaml:5:5", "name yours like custom.badge-number"),
        (detector(id="secrets.jwt"), "0.yaml:5:5", "secrets.* and pii.* are built in"),
        (detector(entropy=9), "0.yaml:8:5", "less than or equal to 8"),
        (detector(validator="luhn"), "0.yaml:8:5", "unknown validator 'luhn'; one of"),
        (detector(allow="['[']"), "0.yaml:8:", "RE2 refuses"),
        (detector(keywords="['']"), "0.yaml:8:", "at least 1 character"),
        (detector(keyword="[x]"), "0.yaml:8:5", "did you mean 'keywords'?"),
        (
            HEAD + "detectors:\n" + BADGE + BADGE,
            "0.yaml:5:6",
            "is already used at 0.yaml:4; give each detector its own id",
        ),
        (HEAD + RULE, "0.yaml:4:54", "there is no detector 'custom.badge'"),
        (HEAD + RULE.replace("custom.badge", "pii.cards"), "0.yaml:4:54", "did you mean 'pii.card'?"),
        (HEAD + RULE.replace("custom.badge", "card"), "0.yaml:4:54", "did you mean 'pii.card'?"),
        (HEAD + RULE.replace("custom.badge", "zzzzzz"), "0.yaml:4:54", "define it under detectors:"),
    ],
)
def test_a_bad_detector_is_refused_with_its_place_and_the_way_out(tmp_path, text, place, words):
    said = refused(tmp_path, text)
    assert said.startswith(place), said
    assert words in said


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (f"{{fingerprint: {PRINT}}}", "'reason' is missing"),
        ("{reason: everything please}", "too wide"),
        ("{reason: too wide, detector: secrets.*}", "too wide"),
        ("{reason: too wide, detector: secrets.*, path: '**'}", "too wide"),
        ("{reason: no detector, path: a.b}", "too wide"),
        ("{reason: short print, fingerprint: 3f9a}", "pattern"),
        (f"{{reason: typo, fingerprint: {PRINT}, tols: x}}", "there is no field 'tols' here"),
    ],
)
def test_a_wide_or_unreasoned_suppression_is_refused(tmp_path, entry, words):
    said = refused(tmp_path, HEAD + f"suppressions:\n  - {entry}\n")
    assert said.startswith("0.yaml:4:"), said
    assert words in said


def test_a_rule_may_name_a_detector_of_another_file(tmp_path):
    policy = load(tmp_path, HEAD + RULE, "version: 1\ndetectors:\n" + BADGE)
    assert [raw["id"] for raw in policy.detectors] == ["custom.badge"]


def test_an_id_taken_in_another_file_is_refused(tmp_path):
    said = refused(tmp_path, HEAD + "detectors:\n" + BADGE, "version: 1\ndetectors:\n" + BADGE)
    assert said.startswith("1.yaml:3:6: id 'custom.badge' is already used at 0.yaml:4")


def suppressed(tmp_path: Path, entry: str, tool: str | None = "read_file", server: str = "docs") -> bool:
    rule = "rules:\n  - {id: scrub, action: redact, methods: ['*'], detectors: [secrets]}\n"
    policy = load(tmp_path, HEAD + rule + f"suppressions:\n  - {{reason: looked at, {entry}}}\n")
    call = Call("tools/call" if tool else "resources/read", server, "bot", tool, {})
    (redaction,) = policy.decide(call).redactions
    return bool(redaction.suppressions)


@pytest.mark.parametrize(
    ("narrow", "applies"),
    [
        ("rule: scrub", True),
        ("rule: scr*", True),
        ("rule: other", False),
        ("tool: read_*", True),
        ("tool: write_*", False),
        ("server: docs", True),
        ("server: bank", False),
        ("rule: scrub, tool: read_file, server: d*", True),
        ("rule: scrub, tool: read_file, server: bank", False),
    ],
)
def test_a_suppression_applies_where_rule_tool_and_server_say(tmp_path, narrow, applies):
    assert suppressed(tmp_path, f"fingerprint: {PRINT}, {narrow}") is applies


def test_a_suppression_for_a_tool_is_not_applied_without_one(tmp_path):
    assert not suppressed(tmp_path, f"fingerprint: {PRINT}, tool: '*'", tool=None)
    assert suppressed(tmp_path, f"fingerprint: {PRINT}", tool=None)


def test_a_suppression_takes_names_as_they_are_spelt(tmp_path):
    assert not suppressed(tmp_path, f"fingerprint: {PRINT}, tool: read_file", tool="READ_FILE")


def test_what_names_nothing_is_remarked_on(tmp_path):
    text = (
        HEAD
        + "rules:\n  - {id: scrub, action: redact, detectors: [secrets]}\n"
        + "detectors:\n"
        + BADGE
        + "suppressions:\n"
        + f"  - {{reason: gone, rule: srub, fingerprint: {PRINT}}}\n"
        + "  - {reason: gone, detector: secrets.awz-key, path: a.b}\n"
        + "  - {reason: fine, rule: scrub, detector: custom.*, path: a.b}\n"
    )
    (tmp_path / "p.yaml").write_text(text)
    found = [(*r.source.at(*r.steps), r.kind) for r in lint_detectors(load_sources(tmp_path, BOOK), BOOK)]
    assert found == [(6, 5, "unused-detector"), (8, 20, "unknown-rule"), (9, 20, "unknown-detector")]


def test_a_detector_that_a_rule_uses_by_its_family_is_not_remarked_on(tmp_path):
    (tmp_path / "p.yaml").write_text(
        HEAD + RULE.replace("custom.badge", "custom").replace("scrub", "x") + "detectors:\n" + BADGE
    )
    assert list(lint_detectors(load_sources(tmp_path, BOOK), BOOK)) == []
