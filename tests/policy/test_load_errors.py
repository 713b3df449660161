"""One mistake, one message."""

import pytest

from proxy.policy.load import PolicyFileError, load_sources

HEAD = "version: 1\ndefault: allow\nrules:\n  - id: a\n    action: deny\n"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (HEAD + "    when: {arg: x, path_under: 5}\n", "6:20", "expects text or a list, got 5"),
        (HEAD + "    when: {arg: x, path_under: [/a, 5]}\n", "6:37", "expects text, got 5"),
        (HEAD + "    when: {arg: x, path_under: ~}\n", "6:5", "in quotes"),
        (HEAD + "    when: {arg: x, path_under: '!/etc/x'}\n", "6:20", "an exception"),
        (HEAD + "    when: {arg: x, length: abc}\n", "6:20", "expects a whole number or a mapping"),
        (HEAD + "    when: {arg: x, length: {gt: a}}\n", "6:29", "expects a whole number, got 'a'"),
        (HEAD + "    when: {arg: x, equals: [1]}\n", "6:20", "expects text, a whole number, a number or true or false"),
        (HEAD + "    when: {arg: x, type: [string, strng]}\n", "6:35", "did you mean 'string'?"),
        (HEAD + "    when: {arg: x, ip_class: privat}\n", "6:20", "did you mean 'private'?"),
        (HEAD + "    when: {arg: x, matches: '[z-a]'}\n", "6:20", "invalid character class range"),
        (HEAD + "    tools: [ok, '[z-a]*']\n", "6:17", "invalid character class range"),
        (HEAD + "    when: {arg: x, command: 'rm \"x'}\n", "6:20", "No closing quotation"),
        (HEAD + "    when: {arg: x, command: '[z-a]'}\n", "6:20", "invalid character class range"),
        (HEAD + "    when: {arg: x, host_in: '[z-a].com'}\n", "6:20", "invalid character class range"),
        (HEAD + "    when: {arg: x, sql: {statements: [select]}}\n", "6:20", "'dialect' is missing"),
        (HEAD + "    when: {arg: '@path', exists: true}\n", "6:12", "@paths"),
        ("version: 1\nrules:\n  - id: a\n    acton: deny\n", "3:5", "did you mean 'action'?"),
        ("version: 1\nrules:\n  - id: a\n    tools: [x]\n", "3:5", "'action' is missing"),
        ("version: 1\nrules: [x]\n", "2:9", "expects a mapping"),
        ("version: 1\nrules:\n  - id: a\n    action: dney\n", "3:5", "did you mean 'deny'?"),
        ("version: 1\nhome: 5\n", "2:1", "expects text or a list"),
        (HEAD + "    tests: [{call: {tool: x}, expect: denied}]\n", "6:31", "should match pattern"),
    ],
)
def test_a_mistake_is_told_once_with_its_place_and_the_way_out(tmp_path, text, place, words):
    file = tmp_path / "p.yaml"
    file.write_text(text)
    with pytest.raises(PolicyFileError) as caught:
        load_sources(file)
    (said,) = str(caught.value).splitlines()
    assert said.startswith(f"{file}:{place}: ")
    assert words in said


def test_two_mistakes_are_told_both(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(HEAD + "    tool: [x]\n    when: {arg: x, gt: a}\n")
    with pytest.raises(PolicyFileError) as caught:
        load_sources(file)
    assert len(caught.value.problems) == 2
