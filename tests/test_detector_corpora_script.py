"""The script that measures detectors on public corpora, on small ones made here."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from proxy.redact import Masker
from scripts import detector_corpora as corpora
from scripts.detector_bigrams import ORDER, table
from scripts.detector_go import assignments, sprintf
from scripts.detector_regex import sample

MASKER = Masker(b"a key for tests alone")

CONTEXTS = """
samples := map[string]string{
    // a comment
    "ini": "{i}Token={s}",
    "go":  `var {i}Token string = "{s}"`,
}
"""
RULE = """
package rules
func Acme() *config.Rule {
    r := config.Rule{RuleID: "acme-token", Regex: utils.GenerateUniqueTokenRegex(`acme_[a-z0-9]{24}`, true)}
    tps := utils.GenerateSampleSecrets("acme", "acme_"+secrets.NewSecret(utils.AlphaNumeric("24")))
    tps = append(tps, fmt.Sprintf("token: %s", "acme_"+secrets.NewSecret(`[a-f0-9]{24}`)), unknown())
    fps := []string{"acme_none"}
    return utils.Validate(r, tps, fps)
}
"""
CONFIG = """
[[rules]]
id = "acme-token"
regex = '''\\b(acme_[a-z0-9]{24})\\b'''
"""
TABLE = """
var validPattern = "x7Kd92mQ4zP1" + "vB8nT5wR"
func TestAcme(t *testing.T) {
    tests := []struct {
        name  string
        want  []string
    }{
        {name: "valid", input: fmt.Sprintf("%s token = '%s'", "acme", validPattern), want: []string{validPattern}},
        {name: "joined", input: "acme token", want: []string{"a:b"}},
        {name: "none", input: "acme", want: nil},
    }
}
"""
EXAMPLES = """
rules:
- id: np.acme.1
  pattern: |
    (?x)(?i)
    \\b (acme_[a-z0-9]{24}) \\b
  examples:
  - 'see acme_k3v9x2m7q1w8z5t4r6y0p2a1 there'
"""


@pytest.fixture
def checkouts(tmp_path: Path) -> Path:
    files = {
        "gitleaks/config/gitleaks.toml": CONFIG,
        "gitleaks/cmd/generate/config/utils/generate.go": CONTEXTS,
        "gitleaks/cmd/generate/config/rules/acme.go": RULE,
        "trufflehog/pkg/detectors/acme/acme_test.go": TABLE,
        "trufflehog/pkg/detectors/acme/acme_integration_test.go": TABLE,
        "noseyparker/data/builtin/rules/acme.yml": EXAMPLES,
        "honest/readme.txt": "An ordinary text.\napi_key = 'x7Kd92mQ4zP1vB8nT5wR'\nmore of it\n" * 3,
        "honest/binary": "\x00\x01",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_gitleaks_positives_are_put_together_and_their_secrets_found(checkouts: Path):
    cases = list(corpora.gitleaks(checkouts / "gitleaks"))
    assert [case.rule for case in cases] == ["acme-token"] * 3
    assert cases[0].text == f"acmeToken={cases[0].secrets[0]}"
    assert cases[1].text == f'var acmeToken string = "{cases[0].secrets[0]}"'
    assert re.fullmatch("token: acme_[a-f0-9]{24}", cases[2].text)
    assert len(list(corpora.unusual(cases))) == len(corpora.UNUSUAL)


def test_trufflehog_tables_name_what_must_be_found(checkouts: Path):
    [case] = corpora.trufflehog(checkouts / "trufflehog")
    assert (case.text, case.secrets) == ("acme token = 'x7Kd92mQ4zP1vB8nT5wR'", ("x7Kd92mQ4zP1vB8nT5wR",))


def test_noseyparker_examples_are_read_with_the_rules_own_regex(checkouts: Path):
    [case] = corpora.noseyparker(checkouts / "noseyparker")
    assert case.secrets == ("acme_k3v9x2m7q1w8z5t4r6y0p2a1",)


def test_the_report_has_a_row_for_each_corpus_and_the_maskings_of_honest_text(
    checkouts: Path, capsys: pytest.CaptureFixture[str]
):
    arguments = ["--folder", str(checkouts), "--honest", str(checkouts / "honest"), "--sample", "1", "--worst", "2"]
    assert corpora.main(arguments) == 0
    said = capsys.readouterr().out
    assert "| gitleaks | 100.0 % of     3 |" in said
    assert "| trufflehog | 100.0 % of     1 |" in said
    assert "| noseyparker |   0.0 % of     1 |" in said, "no detector knows acme_, and no name says secret"
    assert "np.acme.1: 'see acme_" in said
    assert "3 secret:secret-assignment" in said
    assert ">>> 'x7Kd92mQ4zP1vB8nT5wR' <<<" in said


def test_a_missing_checkout_is_said_and_nothing_is_cloned_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert corpora.main(["--folder", str(tmp_path)]) == 0
    assert f"| gitleaks | no checkout in {tmp_path / 'gitleaks'}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("secret", "text", "left"),
    [("abcdefghijkl", "abcdefghijkl", True), ("abcdefghijkl", "[x]ghijkl", True), ("abcdefghijkl", "abc[x]jkl", False)],
)
def test_half_of_a_secret_in_a_row_counts_as_all_of_it(secret: str, text: str, left: bool):
    assert corpora.survives(secret, text) is left


def test_go_strings_of_all_kinds_are_read():
    source = 'a := "x\\n" + `y` // z\nb := []string{a, Sprintf("%s-%d%%", a, 7), f(1)}\nc := T{k: a, l: {1}}'
    found = {name: value for name, value, _ in assignments(source, {})}
    assert found == {"a": "x\ny", "b": ["x\ny", None, None], "c": {"k": "x\ny", "l": [None]}}
    assert sprintf("%s=%q", "a", "b") == 'a="b"'
    assert sprintf("%s", None) is None


@pytest.mark.parametrize("regex", ["[a-f0-9]{32}", "(?i)[a-f]{4}", r"ab|\d{3}-[^a]x?", r"(?:\w{2,}\.){2}z", "a.b"])
def test_a_sample_is_matched_by_its_regex(regex: str):
    source = random.Random(1)
    assert all(re.fullmatch(regex, sample(regex, source)) for _ in range(50))


def test_the_table_of_bigrams_has_a_row_and_a_column_for_each_character():
    rows = table(["banana", "Queue", "queue2"])
    assert {len(row) for row in rows} == {len(rows)} == {len(ORDER)}
    following = dict(zip(ORDER, rows[ORDER.index("q")], strict=True))
    assert min(following, key=lambda sign: int(following[sign], 16)) == "u"
