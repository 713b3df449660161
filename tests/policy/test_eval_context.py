"""What is known of one call while it is judged."""

import pytest

from proxy.policy.eval_context import EvalContext, Trouble, fold_key, fold_names


@pytest.mark.parametrize("key", ["filePath", "file_path", "FILE-PATH", "\uff46ilepath"])
def test_the_spellings_of_one_key_fold_to_the_same(key):
    assert fold_key(key) == "filepath"


def test_names_are_grouped_by_what_they_fold_to():
    assert dict(fold_names({"path": 1, "PATH": 2, "x": 3})) == {"path": ["path", "PATH"], "x": ["x"]}
    assert EvalContext({"Path": 1}).names("path") == ["Path"]
    assert EvalContext({"Path": 1}).names("other") == ()


def test_a_trouble_is_kept_until_it_is_taken():
    context = EvalContext({})
    assert context.give_up(Trouble("ambiguous_value", "why")) == context.guess
    assert context.take_trouble() == Trouble("ambiguous_value", "why")
    assert context.take_trouble() is None
