import pytest

from proxy.policy.conditions import All
from proxy.policy.eval_context import EvalContext
from proxy.policy.operators import compile_when
from proxy.policy.views import YES
from proxy.policy_learning.argument_rules import generalise, round_down, round_up, text_condition
from proxy.policy_learning.text_summary import TextSummary
from proxy.policy_learning.value_shape import Shape


def learned(*seen, levels=None):
    shape = Shape()
    for arguments in seen:
        shape.add(arguments)
    test = compile_when(All.model_validate({"all": generalise(shape, levels or {}).conditions}))
    return lambda arguments: test(EvalContext(arguments)) == YES


def texts(*values):
    found = TextSummary()
    for value in values:
        found.add(value)
    return text_condition(found)[0]


@pytest.mark.parametrize(
    ("seen", "fits", "unfit"),
    [
        ([{}], [{}], [{"a": 1}]),
        ([{"a": 1}, {"a": 90}], [{"a": 50}, {"a": 100}], [{"a": 101}, {"a": -1}, {"a": "5"}, {"a": 1.5}, {}]),
        ([{"a": 1}, {}], [{}, {"a": 1}], [{"A": 1}, {"a": 1, "A": 1}, {"b": 1}]),
        ([{"a": True}], [{"a": True}], [{"a": False}, {"a": "true"}]),
        ([{"a": None}, {"a": 1}], [{"a": None}, {"a": 0}], [{"a": "x"}]),
        ([{"a": []}, {"a": ["x y"]}], [{"a": []}, {"a": ["z"]}], [{"a": [1]}, {"a": ["x"] * 3}, {"a": "x"}]),
        ([{"a": {"b": 1}}], [{"a": {"b": 0}}], [{"a": {"b": 1, "c": 1}}, {"a": {}}, {"a": '{"b": 1}'}]),
        ([{"a": [{"b": 1}, {"b": 2, "c": True}]}], [{"a": [{"b": 1}]}], [{"a": [{"b": 1}, {"d": 1}]}, {"a": [{}]}]),
        ([{"odd key": 1, "x]": 2}], [{"odd key": 0, "x]": "any"}], [{"odd key": "x", "x]": 2}]),
    ],
)
def test_values_like_those_seen_fit_and_others_do_not(seen, fits, unfit):
    test = learned(*seen)
    assert all(map(test, [*seen, *fits]))
    assert not any(map(test, unfit))


def test_levels_widen_one_place_alone():
    seen = {"a": "2026-01-01", "b": "2026-01-01"}
    assert not learned(seen)({**seen, "a": "x"})
    assert learned(seen, levels={"a": 1})({**seen, "a": "x"})
    assert not learned(seen, levels={"a": 1})({**seen, "b": "x"})
    assert learned(seen, levels={"a": 2})({**seen, "a": 5})


def test_texts_become_the_narrowest_condition_that_they_share():
    assert texts("/srv/a/1", "/srv/a/2", "/srv/a/3") == {"path_under": ["/srv/a"]}
    assert texts("https://a.example/x") == {"url_scheme": ["https"], "host_in": ["a.example"]}
    assert texts(*["low", "high"] * 5) == {"in": ["high", "low"]}
    assert texts("a@x.example")["matches"].endswith(r"@(?:x\.example)\z")
    assert texts("hello there") == {"length": {"lte": 50}}
    assert texts("[secret:k:a]") == {"length": {"lte": 50}}
    assert "path_under" not in texts("/etc", "/srv/a")


@pytest.mark.parametrize(("number", "up", "down"), [(0, 0, 0), (1, 1, 0), (7, 10, 0), (60, 100, 50), (0.3, 0.5, 0)])
def test_numbers_are_rounded_outward(number, up, down):
    assert (round_up(number), round_down(number)) == (up, down)


def test_negative_numbers_are_rounded_outward():
    assert (round_down(-60), round_up(-60)) == (-100, -50)
    assert round_up(10**20) >= 10**20


BAD_TEXTS = [
    "/etc/passwd",
    "..\\..\\x",
    "~root",
    "$(id)",
    "`id`",
    "a | b",
    "a; b",
    "<b>",
    "{{7*7}}",
    "a\nb",
    "x %2fetc%2fpasswd",
]


@pytest.mark.parametrize("bad", BAD_TEXTS)
def test_free_text_without_signs_of_paths_shells_and_templates_stays_without_them(bad):
    prose = [{"q": f"weather in town {n}, please!"} for n in range(5)]
    fits = learned(*prose)
    assert fits({"q": "What is the weather (in Oslo) & Lyon?"})
    assert not fits({"q": bad})
    assert learned(*prose[:4])({"q": bad[:20]}), "four texts say too little"
    assert learned(*prose, {"q": f"weather, {bad}"})({"q": bad[:20]}), "what was seen is allowed"


def test_masked_text_says_nothing_of_signs():
    fits = learned(*({"q": f"key [secret:token:{n:06x}] here"} for n in range(9)))
    assert fits({"q": "key a/b here"})
