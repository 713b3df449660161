"""Scoring: what the signals say, and what is made of those there are."""

from __future__ import annotations

import time
from itertools import chain

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.twophase.scoring import (
    combine,
    normal_prompt,
    numbers,
    numeric_variance,
    output_instability,
    prompt_drift,
    prompt_hash,
    score,
)

WEIGHTS = {"output_instability": 0.5, "numeric_variance": 0.3, "prompt_drift": 0.2}
PROMPT = "Pay the invoice."


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ("pay the bill", "Pay the BILL!", 0.0),
        ("pay the bill", "pay the rent", 0.5),
        ("a b", "c d", 1.0),
        ("a b", "", 1.0),
        ("", "", 0.0),
        ("?!", "...", 0.0),
        ("a a a b", "b a", 0.0),
        ("Straße", "STRASSE", 0.0),
        ("over_9000", "over 9000", 1.0),
    ],
)
def test_instability_is_what_the_words_do_not_share(one: str, two: str, expected: float) -> None:
    assert output_instability(one, two) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("none at all", []),
        ("5", [5]),
        ("costs 5.", [5]),
        ("-5 and +6 and \u22127", [-5, 6, -7]),
        ("3.25 .5 -.5", [3.25, 0.5, -0.5]),
        ("1,234,567.89", [1234567.89]),
        ("1'000 1_000 1\u202f000 1\u2019000", [1000, 1000, 1000, 1000]),
        ("1,2,3", [1, 2, 3]),
        ("12,3456", [12, 3456]),
        ("1,234,5678", [1234, 5678]),
        ("6.02e23 1E-3 5e+2", [6.02e23, 0.001, 500]),
        ("10-20", [10, 20]),
        ("INV-2024", [2024]),
        ("USD100 €1,000 -$5 $-5", [100, 1000, -5, -5]),
        ("2024-01-31", [2024, 1, 31]),
        ("1.2.3", [1.2, 3]),
        ("٣", [3]),
        ("5e", [5]),
    ],
)
def test_numbers_are_found_as_people_write_them(text: str, expected: list[float]) -> None:
    assert numbers(text) == expected


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ("pay 100", "pay 100.0", 0.0),
        ("pay 100", "pay 50", 0.5),
        ("pay 50", "pay 100", 0.5),
        ("0", "-0.0", 0.0),
        ("0", "5", 1.0),
        ("100", "-100", 1.0),
        ("1 2", "1", 0.5),
        ("", "7", 1.0),
        ("100 to 3", "80 to 3", 0.1),
        ("1e999", "1e999", 0.0),
        ("1e999", "2e999", 1.0),
        ("1e999", "5", 1.0),
        ("1e308", "-1e308", 1.0),
    ],
)
def test_variance_is_the_mean_difference_of_paired_numbers(one: str, two: str, expected: float) -> None:
    assert numeric_variance(one, two) == pytest.approx(expected)


def test_without_numbers_there_is_no_variance() -> None:
    assert numeric_variance("a", "b") is None
    assert numeric_variance("a", "a") is None


@settings(deadline=None)
@given(st.text(), st.text())
def test_signals_are_between_zero_and_one_and_the_same_both_ways(one: str, two: str) -> None:
    for signal in (output_instability, numeric_variance):
        found = signal(one, two)
        assert found is None or 0 <= found <= 1
        assert found == signal(two, one)
        assert signal(one, one) in (None, 0.0)


NUMERALS = st.text("0123456789.,-+eE'$ ", max_size=60)


@settings(deadline=None)
@given(NUMERALS, NUMERALS)
def test_any_numerals_can_be_compared(one: str, two: str) -> None:
    found = numeric_variance(one, two)
    assert found is None or 0 <= found <= 1


@pytest.mark.parametrize(
    "unit",
    ["1", "1,", "1,111", ",111", "-", "1.", ".", "1e", "e1", "$", "a", " ", "1'1", "\u2212$", "é", "1_", "\u200b"],
)
def test_the_work_is_linear(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    before = time.process_time()
    score([text, text + "1"], text, "0" * 64, WEIGHTS, 0.45)
    assert time.process_time() - before < 5, "quadratic work would take minutes"


@pytest.mark.parametrize(
    "spelling",
    [
        "pay the invoice.",
        "  Pay\tthe\n\n invoice. ",
        "\uff30ay the invoice.",
        "Pay\u00a0the inv\u200boice\ufeff.",
        "P\u00aday the invoice.\u202e",
    ],
)
def test_a_prompt_that_looks_the_same_is_the_same(spelling: str) -> None:
    assert normal_prompt(spelling) == "pay the invoice."
    assert prompt_drift(spelling, prompt_hash(PROMPT)) == 0.0


@pytest.mark.parametrize("other", ["Pay the invoices.", "Pay the invoice", "Paytheinvoice.", "Pay the invoice. Now!"])
def test_any_other_prompt_has_drifted(other: str) -> None:
    assert prompt_drift(other, prompt_hash(PROMPT)) == 1.0


def test_the_normal_form_is_its_own_normal_form() -> None:
    for code in chain(range(0x20000), range(0xE0000, 0xE1000)):
        once = normal_prompt(f"a{chr(code)}b")
        assert normal_prompt(once) == once, hex(code)


@settings(deadline=None)
@given(st.text())
def test_any_prompt_has_a_hash(prompt: str) -> None:
    assert prompt_hash(prompt) == prompt_hash(f" {prompt}\u200b ")
    assert len(prompt_hash(prompt + "\ud800")) == 64


def test_all_signals_are_weighed() -> None:
    found = score(["pay 100 now", "pay 50 now"], "other", prompt_hash(PROMPT), WEIGHTS, 0.9)
    assert found.signals == {"output_instability": 0.5, "numeric_variance": 0.5, "prompt_drift": 1.0}
    assert found.composite == pytest.approx(0.5 * 0.5 + 0.3 * 0.5 + 0.2)
    assert (found.absent, found.blocked, found.reason) == ({}, False, None)


def test_weights_are_shared_out_among_the_signals_present() -> None:
    found = score(["a b", "a c"], PROMPT, prompt_hash(PROMPT), WEIGHTS, 0.9)
    assert found.signals == {"output_instability": 0.666667, "prompt_drift": 0.0}
    assert found.composite == pytest.approx(0.5 * 0.666667 / 0.7, abs=1e-6)
    assert found.absent == {"numeric_variance": "neither candidate output has a number"}


@pytest.mark.parametrize(
    ("candidates", "prompt", "baseline", "absent"),
    [
        (None, None, None, "no candidate outputs were given"),
        ([], "", "x", "no candidate outputs were given"),
        (["a"], " \u200b\n", "x", "two candidate outputs are needed, not 1"),
        (["a", "a", "b"], PROMPT, None, "two candidate outputs are needed, not 3"),
    ],
)
def test_without_signals_it_is_blocked_and_says_why(
    candidates: list[str] | None, prompt: str | None, baseline: str | None, absent: str
) -> None:
    found = score(candidates, prompt, baseline, WEIGHTS, 1.0)
    assert (found.composite, found.blocked, found.reason, found.signals) == (None, True, "no_signals", {})
    assert found.absent["output_instability"] == found.absent["numeric_variance"] == absent
    assert found.absent["prompt_drift"] in ("no prompt was given", "the tool has no baseline prompt")


def test_the_caller_may_say_why_there_are_no_candidates() -> None:
    found = score(None, None, None, WEIGHTS, 0.5, no_candidates="the sampler timed out")
    assert found.absent["output_instability"] == "the sampler timed out"


def test_signals_that_weigh_nothing_are_no_signals() -> None:
    found = score(["a", "a"], None, None, {"output_instability": 0.0, "prompt_drift": 1.0}, 1.0)
    assert (found.composite, found.blocked, found.reason) == (None, True, "no_signals")
    assert found.signals == {"output_instability": 0.0}


@pytest.mark.parametrize("weight", [float("nan"), -1.0])
def test_weights_that_make_no_sense_block(weight: float) -> None:
    assert score(["a", "a"], None, None, {"output_instability": weight}, 1.0).blocked


@pytest.mark.parametrize(
    ("threshold", "blocked"), [(0.0, True), (0.5, True), (0.500001, False), (1.0, False), (float("nan"), True)]
)
def test_it_is_blocked_from_the_threshold_on(threshold: float, blocked: bool) -> None:
    found = score(["a b c", "a b d"], None, None, WEIGHTS, threshold)
    assert found.composite == 0.5
    assert found.blocked is blocked
    assert found.reason == ("low_integrity" if blocked else None)


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(sorted(WEIGHTS)), st.floats(0, 1)),
    st.dictionaries(st.sampled_from(sorted(WEIGHTS)), st.floats(0, 1)),
)
@example({"numeric_variance": 0.5}, {"numeric_variance": 5e-324})
def test_a_composite_is_between_its_signals(signals: dict[str, float], weights: dict[str, float]) -> None:
    found = combine(signals, weights)
    weighed = [value for name, value in signals.items() if weights.get(name)]
    assert (found is None) is (not weighed)
    if found is not None:
        assert min(weighed) - 1e-6 <= found <= max(weighed) + 1e-6
