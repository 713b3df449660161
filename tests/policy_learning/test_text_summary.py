import pytest

from proxy.policy_learning.text_summary import MAX_DISTINCT, MAX_HOSTS, TextSummary


def summed(*texts):
    found = TextSummary()
    for text in texts:
        found.add(text)
    return found


def test_a_masked_text_says_only_what_lies_before_its_mask():
    found = summed("https://api.example.com/v1?key=[secret:api-key:aa]", "https://api.example.com/")
    assert (found.hosts, found.values, found.formats) == ({"api.example.com"}, None, set())
    assert summed("https://[secret:api-key:aa]/x").hosts is None
    assert summed("https://user.[pii:name:aa]").hosts is None
    assert summed("/srv/mail/[pii:email:aa]/inbox").paths == {"/srv/mail"}


@pytest.mark.parametrize("text", ["/srv/../etc", "//host/x", "srv/x", "/a\0b", "/a\n/b"])
def test_what_is_no_plain_path_makes_no_roots(text):
    assert summed("/srv/a", text).paths is None


@pytest.mark.parametrize("url", ["https://a.example@b.example/", "https://a.example\\@b", "HTTPS://x", "http://[::1]/"])
def test_urls_that_readers_may_differ_on_have_no_host(url):
    assert summed(url).hosts is None


def test_sets_are_bounded():
    found = summed(*(f"https://h{number}.example/" for number in range(MAX_DISTINCT + MAX_HOSTS)))
    assert (found.values, found.hosts) == (None, None)


def test_formats_are_those_that_all_texts_have():
    assert "a date" in summed("2026-01-02", "2026-11-12").formats
    assert summed("2026-01-02", "x y").formats == set()
    assert "a relative path" not in summed("src/../../etc/passwd").formats
    assert "a relative path" in summed("src/a.py", ".github/workflows/ci.yml").formats
