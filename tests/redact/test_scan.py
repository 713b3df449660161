"""Both engines give the same findings; scanning is bounded and thread-safe."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.redact.detector_catalog import builtin
from proxy.redact.scan import BLOCK, DetectorMatcher, Scanner, entropy, scanner_for
from proxy.redact.validators import luhn
from tests.redact.labelled import load

ALL = builtin().select(["secrets", "pii"])
TEXTS = [sample.text for sample in load()]


@pytest.fixture(scope="module")
def hyperscan() -> Scanner:
    return scanner_for(builtin(), "hyperscan")


@pytest.fixture(scope="module")
def keywords() -> Scanner:
    return scanner_for(builtin(), "keywords")


def test_both_engines_agree_on_every_labelled_text(hyperscan: Scanner, keywords: Scanner):
    for text in TEXTS:
        assert hyperscan.matches(text.encode(), ALL) == keywords.matches(text.encode(), ALL), text


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.sampled_from(TEXTS), st.text(max_size=20)), max_size=6),
    st.sampled_from([" ", "\n", ""]),
)
def test_both_engines_agree_on_mixtures(hyperscan: Scanner, keywords: Scanner, texts: list[str], glue: str):
    data = glue.join(texts).encode("utf-8", "surrogatepass")
    assert hyperscan.matches(data, ALL) == keywords.matches(data, ALL)


FILLERS = (b" ", b"word ", b"aB3dE6", b"AKIA", b"0123456789", b"ghp_", b"sk-", b"a" * 40 + b" ", b"\x00")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(FILLERS), st.integers(0, 6000), st.sampled_from(TEXTS)), min_size=1, max_size=9),
    st.integers(0, 12),
)
def test_both_engines_agree_on_long_texts(
    hyperscan: Scanner, keywords: Scanner, parts: list[tuple[bytes, int, str]], cut: int
):
    """Past a few kilobytes hyperscan says where RE2 has to look."""
    texts = [filler * (size // len(filler)) + text.encode()[: len(text) - cut] for filler, size, text in parts]
    for data in (b"".join(texts), b"\n".join(texts)):
        assert hyperscan.matches(data, ALL) == keywords.matches(data, ALL)


def test_each_labelled_text_in_a_long_one_is_found_by_both_engines_alike(hyperscan: Scanner, keywords: Scanner):
    for sample in (sample for sample in load() if sample.positive):
        chosen, text = builtin().select([sample.detector]), sample.text.encode()
        for data in (b"word " * 900 + text, (text + b" word" * 300) * 4):
            assert hyperscan.matches(data, chosen) == keywords.matches(data, chosen), sample


def test_matches_are_located_first_where_they_have_a_greatest_length(hyperscan: Scanner):
    data = b"word " * 900 + b"npm_" + b"aB3" * 12
    chosen = builtin().select(["secrets.npm-token", "secrets.jwt"])
    assert hyperscan.matches(data, chosen)
    searched = {index: hyperscan._regions(index, data, [(0, len(data))]) for index in chosen}
    assert sorted(searched.values()) == [[(0, len(data))], [(4539, 4540)]]


@pytest.mark.parametrize("offset", [BLOCK - 45, BLOCK - 20, BLOCK - 1, BLOCK, 3 * BLOCK - 10])
def test_a_secret_across_the_edge_of_a_block_is_found(hyperscan: Scanner, offset: int):
    secret = b"ghp_" + b"aB3" * 12
    data = b"." * offset + secret + b"." * (2 * BLOCK)
    spans = [(match.start, match.end) for match in hyperscan.matches(data, ALL)]
    assert spans == [(offset, offset + len(secret))]


def test_a_long_key_across_a_block_is_found_to_its_end(hyperscan: Scanner):
    body = b"-----BEGIN PRIVATE KEY-----\n" + b"A" * (3 * BLOCK) + b"\n-----END PRIVATE KEY-----"
    [match] = hyperscan.matches(b"x " * 100 + body + b" y" * BLOCK, ALL)
    assert (match.start, match.end) == (200, 200 + len(body))


def test_only_the_chosen_detectors_are_run(hyperscan: Scanner):
    data = b"bob@example.com 4111111111111111"
    card = builtin().select(["pii.card"])
    assert {match.detector for match in hyperscan.matches(data, card)} == set(card)


def test_families_for_what_leaves_are_found_where_they_are_chosen(hyperscan: Scanner, keywords: Scanner):
    families = ["wallet", "shape"]
    texts = [text.encode() for text in TEXTS]
    for chosen in (builtin().select([family]) for family in families):
        found = [hyperscan.matches(text, chosen) for text in texts]
        assert found == [keywords.matches(text, chosen) for text in texts]
        assert any(found)
    both = builtin().select(["secrets", *families])
    assert [hyperscan.matches(text, both) for text in texts] == [keywords.matches(text, both) for text in texts]


def test_past_the_limit_all_that_follows_counts_as_matched(hyperscan: Scanner, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("proxy.redact.scan.MAX_MATCHES", 500)
    data = b"a1@example.com " * 510 + b"tail"
    matches = hyperscan.matches(data, builtin().select(["pii.email"]))
    assert len(matches) == 500
    assert (matches[-1].end, matches[-1].is_rest) == (len(data), True)
    assert not any(match.is_rest for match in matches[:-1])


def test_what_is_refused_does_not_hide_what_begins_inside_it(hyperscan: Scanner):
    data = b"2235 4111 1111 1111 1111"
    [match] = hyperscan.matches(data, builtin().select(["pii.card"]))
    assert data[match.start : match.end] == b"4111 1111 1111 1111"


BAIT = {
    "pii.card": (b"4000 ", b"4000 0000 0001 ", b"4111 1111 1111 1111"),
    "pii.iban": (b"DE89 3704 ", b"DE89 3704 0044 ", b"DE89 3704 0044 0532 0130 00"),
}


@pytest.mark.parametrize("detector", BAIT)
def test_no_number_of_baits_hides_what_begins_inside_one(hyperscan: Scanner, keywords: Scanner, detector: str):
    bait, last, secret = BAIT[detector]
    data = bait * 10_000 + b";" + last + secret + b"; " + bait
    for scanner in (hyperscan, keywords):
        [match] = scanner.matches(data, builtin().select([detector]))
        assert data[match.start : match.end] == secret


def test_a_large_table_of_numbers_is_left_as_it_is(hyperscan: Scanner):
    rows = [
        f"{70_000_000_000_000_000 + 97 * row},{4_000_000_000_000_001 + 70 * row},2024-05-17" for row in range(40_000)
    ]
    rows = [row for row in rows if not luhn([int(digit) for digit in row.split(",")[1]])]
    assert len(rows) > 30_000
    assert hyperscan.matches("\n".join(rows).encode(), ALL) == []


@pytest.mark.parametrize(
    ("unit", "detector"), [(b"sk-proj-", "secrets.openai-key"), (b"secret=token=", "secrets.secret-assignment")]
)
def test_matches_in_matches_cost_what_they_are_long_and_not_the_square_of_it(
    hyperscan: Scanner, unit: bytes, detector: str, monkeypatch: pytest.MonkeyPatch
):
    """Each of them is refused, and reaches to the end: past a bound all that follows counts as matched."""
    [index] = builtin().select([detector])
    rule = hyperscan._matchers.setdefault(index, DetectorMatcher(index, builtin().detectors[index]))
    looked = 0

    def counted(data: bytes, position: int, limit: int) -> list[tuple[int, int]]:
        nonlocal looked
        spans = search(data, position, limit)
        looked += spans[0][1] - position
        return spans

    search = rule._search
    monkeypatch.setattr(rule, "_search", counted)
    data = b"key " + unit * (150_000 // len(unit))
    [match] = hyperscan.matches(data, frozenset({index}))
    assert match.end == len(data)
    assert looked < 60 * len(data), "the square of it would be thousands of times its length"


def test_threads_share_a_scanner(hyperscan: Scanner):
    expected = [hyperscan.matches(text.encode(), ALL) for text in TEXTS]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: hyperscan.matches(text.encode(), ALL), TEXTS * 4))
    assert found == expected * 4


def test_without_hyperscan_the_keywords_serve(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("proxy.redact.scan.AVAILABLE", False)
    scanner = scanner_for.__wrapped__(builtin())
    assert type(scanner) is Scanner
    assert scanner.matches(b"ghp_" + b"aB3" * 12, ALL)
    with pytest.raises(RuntimeError, match="not installed"):
        scanner_for.__wrapped__(builtin(), "hyperscan")


@pytest.mark.parametrize(("value", "bits"), [(b"", 0.0), (b"aaaa", 0.0), (b"abab", 1.0), (bytes(range(256)), 8.0)])
def test_entropy_is_in_bits_per_byte(value: bytes, bits: float):
    assert entropy(value) == pytest.approx(bits)
