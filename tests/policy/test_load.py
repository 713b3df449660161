"""Reading policy files, and what is said about bad ones."""

import time

import pytest

from proxy.core.model import Call, Outcome
from proxy.errors import PolicyError
from proxy.policy import yaml_file
from proxy.policy.load import load_policy, load_sources, load_text
from proxy.redact import builtin
from proxy.system.package_data import policies_dir

HEAD = "version: 1\ndefault: allow\n"
RULE = "rules:\n  - id: a\n    action: deny\n"


def load(tmp_path, text, name="p.yaml"):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return load_policy(file)


def refused(tmp_path, text):
    with pytest.raises(PolicyError) as caught:
        load(tmp_path, text)
    return str(caught.value).replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (HEAD + RULE + "    tols: [x]\n", "p.yaml:6:5", "did you mean 'tools'?"),
        (
            HEAD + RULE + "    when: {arg: path, path_undr: /etc}\n",
            "p.yaml:6:23",
            "did you mean 'path_under'?",
        ),
        (HEAD + RULE + "    when: {arg: path}\n", "p.yaml:6:5", "needs an operator"),
        (HEAD + RULE + "    when: {all: [], any: []}\n", "p.yaml:6:5", "write one of all"),
        (HEAD + RULE + "    when: {arg: 'a..b', equals: 1}\n", "p.yaml:6:12", "empty step"),
        (HEAD + RULE + "    when: {arg: 'a[x]', equals: 1}\n", "p.yaml:6:12", "write [*], [0]"),
        (HEAD + RULE + "    when: {arg: x, matches: '(a'}\n", "p.yaml:6:20", "RE2 refuses"),
        (HEAD + RULE + "    when: {arg: x, matches: '(?=a)'}\n", "p.yaml:6:20", "no look-around"),
        (HEAD + RULE + "    when: {arg: x, cidr: 10.0.0.0/99}\n", "p.yaml:6:20", "10.0.0.0/8"),
        (HEAD + RULE + "    when: {arg: x, path_under: ~+/x}\n", "p.yaml:6:20", "write the full path"),
        (HEAD + RULE + "    when: {arg: x, ip_class: privat}\n", "p.yaml:6:20", "did you mean 'private'?"),
        (HEAD + RULE + "    when: {arg: x, gt: '5'}\n", "p.yaml:6:20", "'5'"),
        (HEAD + RULE + "    action: allow\n", "p.yaml:6:5", "duplicate key"),
        (HEAD + RULE + "    approval: human\n", "p.yaml:6:5", "belongs elsewhere"),
        (HEAD + RULE + "    mode: shadwo\n", "p.yaml:6:5", "did you mean 'shadow'?"),
        (HEAD + RULE + "    severity: 5\n", "p.yaml:6:5", "'critical'"),
        (HEAD + "rules:\n  - id: a\n    action: denny\n", "p.yaml:4:5", "did you mean 'deny'?"),
        (HEAD + "rules:\n  - id: a\n", "p.yaml:4:5", "'two_phase'"),
        (HEAD + "rules:\n  - action: deny\n", "p.yaml:4:5", "'id' is missing"),
        (HEAD + "rules:\n  - {id: a, action: redact}\n", "p.yaml:4:5", "'detectors' is missing"),
        (HEAD + "rules:\n  - {id: 'a b', action: deny}\n", "p.yaml:4:6", "'a b'"),
        (HEAD + RULE + "  - id: a\n    action: allow\n", "p.yaml:6:5", "is already used at"),
        (
            HEAD + RULE + "    tests:\n      - {call: {tool: x}, expect: allow}\n",
            "p.yaml:4:5",
            "expect 'deny' or 'no_match'",
        ),
        ("version: 2\n", "p.yaml:1:1", "write 1"),
        ("default: allow\n", "p.yaml:1:1", "'version' is missing"),
        (HEAD + "rule: []\n", "p.yaml:3:1", "did you mean 'rules'?"),
        ("version: 1\ndefault: alow\n", "p.yaml:2:1", "did you mean 'allow'?"),
        ("", "p.yaml:1:1", "version: 1"),
        ("- a\n", "p.yaml:1:1", "a policy is a mapping"),
        ("version: 1\n x: [\n", "p.yaml:2:", ""),
        (
            HEAD + "egress: {rules: [{id: x, action: deny, host: [a]}]}\n",
            "p.yaml:3:",
            "did you mean 'hosts'?",
        ),
        (HEAD + "egress: {rules: [{id: x, action: redact}]}\n", "p.yaml:3:", "'allow', 'deny' or 'secrets'"),
        (HEAD + "egress: {rules: [{id: x, action: secrets}]}\n", "p.yaml:3:", "go together"),
        (HEAD + "egress: {rules: [{id: x, action: allow, secrets: deny}]}\n", "p.yaml:3:", "go together"),
        (HEAD + "egress: {secrets: mask}\n", "p.yaml:3:", "'allow', 'report' or 'deny'"),
        (HEAD + "rules: !!python/object:os.system []\n", "p.yaml:3:1", "remove it"),
        (HEAD + "rules:\n  - id: a\n    action: deny\n    tools: [x, !!set {y}]\n", "p.yaml:6:16", "quote it"),
        (HEAD + "x: &a [*a]\n", "p.yaml:", ""),
        (HEAD + RULE + "    description: 2020-01-01\n", "p.yaml:", "quote it"),
    ],
)
def test_an_error_names_the_place_and_the_way_out(tmp_path, text, place, words):
    said = refused(tmp_path, text)
    assert said.startswith("/" + place), said
    assert words in said


def test_every_error_is_told_at_once(tmp_path):
    said = refused(tmp_path, HEAD + RULE + "    tols: [x]\n    mode: maybe\n")
    assert len(said.splitlines()) == 2


def test_a_file_that_is_not_there_or_not_text_is_told_of(tmp_path):
    with pytest.raises(PolicyError, match="no such file"):
        load_policy(tmp_path / "none.yaml")
    with pytest.raises(PolicyError, match="no policy in this folder"):
        load_policy(tmp_path)
    (tmp_path / "p.yaml").write_bytes(b"version: 1\n# \xff\n")
    with pytest.raises(PolicyError, match="UTF-8"):
        load_policy(tmp_path / "p.yaml")


def test_a_folder_is_one_policy_and_the_stricter_default_holds(tmp_path):
    load(tmp_path, HEAD + RULE, "a.yaml")
    load(tmp_path, "version: 1\ndefault: deny\nrules: [{id: b, action: allow, tools: [x]}]\n", "b.yml")
    (tmp_path / "notes.txt").write_text("not a policy")
    policy = load_policy(tmp_path)
    assert (set(policy.rules), policy.default) == ({"a", "b"}, "deny")


def test_a_policy_that_names_no_default_denies(tmp_path):
    assert load(tmp_path, "version: 1\n").default == "deny"


def test_an_id_is_taken_across_the_files_of_a_folder(tmp_path):
    load(tmp_path, HEAD + RULE, "a.yaml")
    load(tmp_path, HEAD + RULE, "b.yaml")
    with pytest.raises(PolicyError, match=r"b\.yaml:4:5: id 'a' is already used at .*a\.yaml:4"):
        load_policy(tmp_path)


def test_egress_sections_add_up_and_the_stricter_setting_holds(tmp_path):
    rule = "{id: x, action: deny, hosts: [a.com]}"
    load(tmp_path, HEAD + f"egress: {{private: deny, secrets: report, rules: [{rule}]}}\n", "a.yaml")
    load(
        tmp_path,
        HEAD + "egress: {metadata: allow, rules: [{id: y, action: deny, hosts: [b.com]}]}\n",
        "b.yaml",
    )
    section = load_policy(tmp_path).egress.section
    assert (section.private, section.metadata, section.default) == ("deny", "deny", "allow")
    assert section.secrets == "report"
    assert [rule.id for rule in section.rules] == ["x", "y"]


def test_the_version_is_that_of_the_content(tmp_path):
    first = load(tmp_path, HEAD + RULE)
    again = load(tmp_path, HEAD + RULE, "other.yaml")
    changed = load(tmp_path, HEAD + RULE + "    description: x\n")
    assert first.version == again.version != changed.version
    assert len(first.version) == 64


def test_anchors_and_on_are_read_as_yaml_1_2_has_them(tmp_path):
    policy = load(
        tmp_path,
        HEAD + "rules:\n  - {id: a, action: redact, on: [result], detectors: &d [secrets]}\n"
        "  - {id: b, action: redact, on: [arguments], detectors: *d}\n",
    )
    decision = policy.decide(Call("tools/call", "s", "a", "t", {}))
    assert decision.outcome is Outcome.ALLOW
    assert [(r.rule, sorted(r.on)) for r in decision.redactions] == [("a", ["result"]), ("b", ["arguments"])]


@pytest.mark.parametrize(
    ("sections", "mode", "hidden"),
    [
        (["", ""], "record", "enforce"),
        (["pins: {mode: off}", ""], "off", "enforce"),
        (["pins: {mode: off}", "pins: {mode: enforce}"], "enforce", "enforce"),
        (["pins: {mode: off}", "pins: {hidden_characters: record}"], "off", "record"),
        (["pins: {hidden_characters: enforce}", "pins: {hidden_characters: record}"], "record", "enforce"),
    ],
)
def test_of_several_files_the_strictest_word_on_pins_holds(tmp_path, sections, mode, hidden):
    for number, section in enumerate(sections):
        (tmp_path / f"{number}.yaml").write_text(HEAD + section + "\n")
    made = load_policy(tmp_path).pins
    assert (made.mode, made.hidden_characters) == (mode, hidden)


def test_a_misspelt_mode_of_pins_is_refused_with_the_way_out(tmp_path):
    said = refused(tmp_path, HEAD + "pins:\n  mode: enforced\n")
    assert "p.yaml:4:3" in said
    assert "did you mean 'enforce'?" in said
    assert "did you mean 'mode'?" in refused(tmp_path, HEAD + "pins: {mod: off}\n")


def test_aliases_of_aliases_are_refused_soon_and_with_their_place(tmp_path):
    lines = ["version: 1", "rules: []", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    started = time.process_time()
    assert "p.yaml:7:5: up to here the file holds more than 200,000 values" in refused(tmp_path, "\n".join(lines))
    assert time.process_time() - started < 10


def test_a_file_nested_too_deep_is_refused(tmp_path):
    assert "p.yaml:1:1: nested too deep" in refused(tmp_path, "version: 1\nx: " + "[" * 600 + "]" * 600)


def test_an_alias_within_bounds_is_as_good_as_what_it_stands_for(tmp_path):
    text = HEAD + "rules:\n  - {id: a, action: deny, tools: &t [x]}\n  - {id: b, action: deny, servers: *t}\n"
    assert load(tmp_path, text).rules["b"].servers == ["x"]


class Kept(dict[str, bytes]):
    """What was parsed before, in memory."""

    put = dict.__setitem__


RULES = HEAD + "rules:\n  - {id: a, action: deny, tools: [x], when: {arg: n, equals: 1}}\n"
CALL = Call("tools/call", "server", "agent", "x", {"n": 1})


def load_kept(tmp_path, text, kept, monkeypatch, *, parses, name="p.yaml"):
    """Load a policy, and check whether that took a parse of its YAML."""
    parsed = []
    real = yaml_file.parse_yaml
    with monkeypatch.context() as patch:
        patch.setattr(yaml_file, "parse_yaml", lambda text: parsed.append(text) or real(text))
        (tmp_path / name).write_text(text)
        try:
            return load_policy(tmp_path, builtin(), parsed=kept)
        finally:
            assert bool(parsed) == parses


def test_a_file_is_parsed_once_and_decides_the_same_from_what_was_kept(tmp_path, monkeypatch):
    kept = Kept()
    first = load_kept(tmp_path, RULES, kept, monkeypatch, parses=True)
    again = load_kept(tmp_path, RULES, kept, monkeypatch, parses=False)
    assert first.rules == again.rules
    assert first.version == again.version
    assert first.decide(CALL) == again.decide(CALL)
    assert again.decide(CALL).outcome is Outcome.DENY


def test_the_shipped_policies_are_the_same_from_what_was_kept(monkeypatch):
    kept = Kept()
    for file in sorted(policies_dir().glob("*.yaml")):
        first = load_policy(file, builtin(), parsed=kept)
        with monkeypatch.context() as patch:
            patch.setattr(yaml_file, "parse_yaml", None)
            again = load_policy(file, builtin(), parsed=kept)
        assert first.rules == again.rules
        assert first.egress.section == again.egress.section
        assert (first.default, first.detectors, first.pins) == (again.default, again.detectors, again.pins)


def test_a_change_of_one_character_is_parsed(tmp_path, monkeypatch):
    kept = Kept()
    load_kept(tmp_path, RULES, kept, monkeypatch, parses=True)
    changed = load_kept(tmp_path, RULES.replace("equals: 1", "equals: 2"), kept, monkeypatch, parses=True)
    assert changed.decide(CALL).outcome is Outcome.ALLOW


@pytest.mark.parametrize(
    "damaged", [b"", b"{", b"null", b"[]", b"\xff", b'{"version": 1, "rulez": []}', b"[" * 100_000]
)
def test_what_was_kept_and_is_no_policy_is_parsed_again(damaged, tmp_path, monkeypatch):
    kept = Kept()
    load_kept(tmp_path, RULES, kept, monkeypatch, parses=True)
    for name in list(kept):
        kept[name] = damaged
    again = load_kept(tmp_path, RULES, kept, monkeypatch, parses=True)
    assert again.decide(CALL).outcome is Outcome.DENY


def test_a_bad_file_is_not_kept(tmp_path, monkeypatch):
    kept = Kept()
    for _ in range(2):
        with pytest.raises(PolicyError, match="there is no field 'rulez'"):
            load_kept(tmp_path, HEAD + "rulez: []\n", kept, monkeypatch, parses=True)
    assert kept == {}


def test_problems_between_files_have_their_places_also_from_what_was_kept(tmp_path, monkeypatch):
    kept = Kept()
    load_kept(tmp_path, RULES, kept, monkeypatch, parses=True)
    with pytest.raises(PolicyError) as caught:
        load_kept(tmp_path, RULES, kept, monkeypatch, parses=True, name="q.yaml")
    assert "q.yaml:4:6: id 'a' is already used at" in str(caught.value)
    assert "p.yaml:4;" in str(caught.value)


def test_values_that_json_would_change_are_parsed_every_time(tmp_path, monkeypatch):
    text = RULES.replace("when:", "tests: [{call: {tool: x, arguments: {m: {1: a}}}, expect: no_match}], when:")
    kept = Kept()
    for _ in range(2):
        load_kept(tmp_path, text, kept, monkeypatch, parses=True)
    assert kept == {}


def test_included_files_belong_to_the_policy_and_to_its_version(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.yaml").write_text("version: 1\nrules: [{id: b, action: deny, tools: [t]}]\n")
    (tmp_path / "a.yaml").write_text("version: 1\ndefault: allow\ninclude: [in/b.yaml, in/b.yaml]\n")
    policy = load_policy(tmp_path / "a.yaml")
    assert [*policy.rules] == ["b"]
    assert [file.name for file in policy.files] == ["a.yaml", "b.yaml"]
    (tmp_path / "in" / "b.yaml").write_text("version: 1\nrules: [{id: b, action: deny, tools: [u]}]\n")
    assert load_policy(tmp_path / "a.yaml").version != policy.version


def test_files_that_include_each_other_are_loaded_once(tmp_path):
    (tmp_path / "a.yaml").write_text("version: 1\ninclude: [b.yaml]\n")
    (tmp_path / "b.yaml").write_text("version: 1\ninclude: [a.yaml]\n")
    assert len(load_sources(tmp_path / "a.yaml")) == 2


def test_a_missing_include_is_told_with_its_place(tmp_path):
    (tmp_path / "a.yaml").write_text("version: 1\ninclude:\n  - gone.yaml\n")
    with pytest.raises(PolicyError, match=r"a\.yaml:3:5: there is no file .*gone\.yaml"):
        load_policy(tmp_path / "a.yaml")


def test_a_copy_of_a_file_that_is_loaded_beside_counts_once(tmp_path):
    text = "version: 1\nrules: [{id: b, action: deny, tools: [t]}]\n"
    (tmp_path / "shipped.yaml").write_text(text)
    (tmp_path / "copy.yaml").write_text(text)
    policy = load_policy(tmp_path / "copy.yaml", also=[tmp_path / "shipped.yaml"])
    assert [file.name for file in policy.files] == ["copy.yaml"]


def test_a_text_is_loaded_as_a_file_is():
    assert load_text(HEAD + RULE, "proposal", builtin()).content.rules[0].id == "a"
    assert load_text("mode: shadow\n" + HEAD + RULE, "proposal").content.call_rules[0].mode == "shadow"
    for text in (HEAD + RULE + "    tols: [x]\n", HEAD + RULE + RULE[7:], "- x", "a: \ud800"):
        with pytest.raises(PolicyError, match="proposal:"):
            load_text(text, "proposal", builtin())
    redact = "  - {id: b, action: redact, detectors: [nosuch], on: [result]}\n"
    with pytest.raises(PolicyError, match="nosuch"):
        load_text(HEAD + "rules:\n" + redact, "proposal", builtin())
