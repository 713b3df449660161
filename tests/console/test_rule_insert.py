import pytest

from proxy.console.rule_insert import with_rule
from proxy.policy.load import load_text

RULE = """\
version: 1
rules:
- id: new
  action: allow
  when:
    all:
    - arg: path
      path_under: [/srv]
"""
FILES = {
    "indented": "version: 1\n# why\nrules:\n  # the first\n  - id: a\n    action: deny\n  - {id: b, action: deny}\n",
    "at the margin": "version: 1\nrules:\n- id: a\n  action: deny\n- {id: b, action: deny}\ndefault: allow\n",
    "indented by four": "version: 1\nrules:  # mine\n    - {id: a, action: deny}\n    - {id: b, action: deny}\n",
    "with an empty line": "version: 1\nrules:\n\n  - {id: a, action: deny}\n\n  - {id: b, action: deny}\n",
    "a comment first": "version: 1\nrules:\n# the first\n- id: a\n  action: deny\n- {id: b, action: deny}\n",
    "something behind": "rules:\n  - {id: a, action: deny}\n  - {id: b, action: deny}\nversion: 1\n",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_the_rule_comes_first_and_the_others_stay(text):
    content = load_text(with_rule(text, RULE), "draft").content
    assert [rule.id for rule in content.rules] == ["new", "a", "b"]


@pytest.mark.parametrize(
    "text", ["version: 1\n", "version: 1\nrules: []\n", "version: 1\nrules: []  # none\ndefault: allow\n"]
)
def test_a_file_without_rules_gets_its_first(text):
    assert [rule.id for rule in load_text(with_rule(text, RULE), "draft").content.rules] == ["new"]


def test_comments_stay():
    assert "# why" in with_rule(FILES["indented"], RULE)
    assert "# the first" in with_rule(FILES["indented"], RULE)
