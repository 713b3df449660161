"""The hosts that a string may name."""

import pytest

from proxy.policy.hosts import Host, canonical_host, lookalikes, read_url, skeleton


def names(hosts):
    return [host.name for host in hosts]


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("https://Example.com./x", ["example.com"]),
        ("example.com:8443", ["example.com"]),
        ("http://0x7f.1/", ["127.0.0.1"]),
        ("2130706433", ["127.0.0.1"]),
        ("http:example.com", ["example.com"]),
        ("ht\ntp://exa\tmple.com/", ["example.com"]),
        ("//example.com/x", ["example.com"]),
        ("::1", ["::1"]),
        ("just some words", []),
        ("/a/path", []),
        ("", []),
    ],
)
def test_a_careful_reader_takes_one_host(text, exact):
    found = read_url(text)
    assert (names(found.exact), found.problem) == (exact, None)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("https://proxy.example/?url=http://10.0.0.1/", "10.0.0.1"),
        ("see http://10.0.0.1/ for more", "10.0.0.1"),
        ("https://proxy.example/?url=//10.0.0.1/", "10.0.0.1"),
        ("jdbc:mysql://10.0.0.1/x", "10.0.0.1"),
        ("'10.0.0.1'", "10.0.0.1"),
        ("git@10.0.0.1:a/b.git", "10.0.0.1"),
        ("http%3A%2F%2F10.0.0.1%2F", "10.0.0.1"),
    ],
)
def test_a_careless_reader_may_take_another(text, host):
    assert host in names(read_url(text).hosts)


@pytest.mark.parametrize(
    "text",
    [
        "http://good.com\\@evil.com/",
        "https://good.com@evil.com/",
        "http://[::1/",
        "http://256.256.256.256/",
        "x" * 9000,
        "me@you@example.com",
    ],
)
def test_a_url_that_readers_disagree_on_or_cannot_read_is_a_problem(text):
    assert read_url(text).problem is not None


def test_schemes_are_those_of_the_url_and_of_what_it_wraps():
    found = read_url("view-source:FILE:///x")
    assert found.exact_schemes == ("view-source",)
    assert set(found.schemes) == {"view-source", "file"}
    assert read_url("/tmp/x").schemes == ("file",)
    assert read_url("example.com:80").schemes == ()


def test_a_host_has_the_classes_of_its_addresses_or_of_its_name():
    assert canonical_host("[::ffff:10.0.0.1]").classes()[-1] == {"private"}
    assert canonical_host("localhost").classes() == ({"loopback"},)
    assert Host("example.com").classes() == ()
    assert canonical_host("a b") is None


def test_a_name_in_another_script_and_an_address_in_a_name_are_seen():
    assert skeleton("xn--pple-43d.com") == "apple.com"
    assert skeleton("xn--\u20ac.com").startswith("xn--")
    assert names(lookalikes(Host("xn--pple-43d.com"))) == ["apple.com"]
    for name in ("10-0-0-1.sslip.io", "10.0.0.1.nip.io", "0a000001.nip.io"):
        (found,) = lookalikes(Host(name))
        assert [str(address) for address in found.addresses] == ["10.0.0.1"]
    assert lookalikes(Host("version-1-2-3.example.com")) == []
