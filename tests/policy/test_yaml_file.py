"""The YAML of a policy file; tests/policy/test_load.py has what is said about bad files."""

import pytest

from proxy.policy.yaml_file import YamlFileError, parse_yaml, plain_values


def test_values_are_plain_and_keep_their_types():
    values = plain_values(parse_yaml(b"a: yes\nb: [1, 1.5, '1', true, null]\nc: &x {d: 'e'}\nf: *x\n"))
    assert values == {"a": "yes", "b": [1, 1.5, "1", True, None], "c": {"d": "e"}, "f": {"d": "e"}}
    assert [type(value) for value in values["b"]] == [int, float, str, bool, type(None)]
    assert type(values["c"]) is dict


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (b"", (1, 1), "this file is empty"),
        (b"- a\n", (1, 1), "this file is a seq"),
        (b"a: 1\na: 2\n", (2, 1), "keep one of the two"),
        (b"a: \xff\n", (1, 1), "byte 3 is not UTF-8"),
        (b"a: 1\nb: !!python/name:os.system x\n", (2, 1), "has no meaning here"),
        (b"a: 1\nb: 2020-01-01\n", (2, 1), "quote it"),
    ],
)
def test_an_error_has_its_place(text, place, words):
    with pytest.raises(YamlFileError) as caught:
        plain_values(parse_yaml(text))
    assert (caught.value.line, caught.value.column) == place
    assert words in str(caught.value)
