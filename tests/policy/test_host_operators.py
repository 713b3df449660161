"""The operators on URLs, hosts and addresses."""

import pytest

from proxy.policy.arg_path import parse_arg
from proxy.policy.eval_context import EvalContext
from proxy.policy.host_operators import cidr, compile_hosts, host_in, ip_class, url_scheme, view_url
from proxy.policy.hosts import Host, canonical_host
from proxy.policy.views import MAY, NO, YES, WrongTypeError


def judge(operator, operand, value):
    return operator(parse_arg("url"), operand)(EvalContext({"url": value}))


@pytest.mark.parametrize(
    ("patterns", "inside", "outside"),
    [
        (("example.com",), ["example.com", "EXAMPLE.com."], ["a.example.com", "example.com.org"]),
        (("*.example.com",), ["a.example.com", "a.b.example.com"], ["example.com", "notexample.com"]),
        ((".example.com",), ["example.com", "a.example.com"], ["notexample.com"]),
        (("api-*.example.com",), ["api-1.example.com"], ["api.example.com"]),
        (("10.0.0.1",), ["10.0.0.1", "0x0a000001", "10.1"], ["10.0.0.2"]),
        (("*",), ["anything", "10.0.0.1"], []),
    ],
)
def test_a_host_is_in_a_set_by_name_domain_glob_or_address(patterns, inside, outside):
    hosts = compile_hosts(patterns)
    assert [text for text in (*inside, *outside) if hosts.may(canonical_host(text))] == inside


def test_an_allow_of_an_address_does_not_cover_the_ipv6_form_that_other_kernels_dial_as_it_is():
    hosts = compile_hosts(("10.0.0.1",))
    wrapped = canonical_host("[::ffff:10.0.0.1]")
    assert hosts.may(wrapped)
    assert not hosts.must(wrapped)
    assert hosts.must(canonical_host("10.0.0.1"))
    assert not compile_hosts(("*",)).must(Host("10.0.0.1", canonical_host("10.0.0.1").addresses))


@pytest.mark.parametrize(
    ("operator", "operand", "value", "bits"),
    [
        (host_in, "example.com", "https://example.com/x", YES),
        (host_in, "example.com", "https://evil.org/?u=https://example.com/", MAY),
        (host_in, "example.com", "https://evil.org/", NO),
        (ip_class, "public", "http://8.8.8.8/", YES),
        (ip_class, "public", "http://example.com/", NO),
        (ip_class, "loopback", "http://0.0.0.0/", MAY),
        (ip_class, ["loopback", "unspecified"], "http://0.0.0.0/", YES),
        (ip_class, "private", "http://[64:ff9b::10.0.0.1]/", MAY),
        (cidr, "10.0.0.0/8", "http://10.1.2.3/", YES),
        (cidr, "10.0.0.0/8", "http://[::ffff:10.1.2.3]/", MAY),
        (cidr, "10.0.0.0/8", "http://example.com/", NO),
        (url_scheme, "https", "HTTPS://x/", YES),
        (url_scheme, ["https:", "http://"], "http://x/", YES),
        (url_scheme, "file", "view-source:file:///x", MAY),
        (url_scheme, "https", "x", NO),
    ],
)
def test_an_operator_must_hold_for_every_reading_to_allow_and_for_any_to_deny(operator, operand, value, bits):
    assert judge(operator, operand, value) == bits


def test_a_url_that_readers_disagree_on_cannot_be_judged():
    context = EvalContext({"url": "http://good.com\\@evil.com/"})
    assert host_in(parse_arg("url"), "example.com")(context) == context.guess
    assert context.take_trouble().reason == "ambiguous_value"


def test_what_is_no_string_is_no_url():
    with pytest.raises(WrongTypeError):
        view_url(["http://x/"])
