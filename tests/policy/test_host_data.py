"""Data in the labels of host names."""

import pytest

from proxy.policy.host_data import carries_data, site_of


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("example.com", "example.com"),
        ("a.b.Example.com.", "example.com"),
        ("a.b.example.co.uk", "example.co.uk"),
        ("localhost", "localhost"),
        ("10.0.0.1", "10.0.0.1"),
        ("[::1]", "[::1]"),
    ],
)
def test_the_site_is_what_one_owner_registered(host, site):
    assert site_of(host) == site


@pytest.mark.parametrize(
    "host",
    [
        "68656c6c6f20776f726c64.t.example.net",
        "6a616e65646f65.7061737334.t.example.net",
        "NBSWY3DPEB3W64TMMQ.example.net",
        "x8k2mq9vr4sl7nw1by6c.example.net",
        "a1b2c3d4.e5f6a7b8.c9d0e1f2.a3b4c5d6.example.net",
        "4111-1111-1111-1111.example.net",
        "da39a3ee5e6b4b0d3255bfef95601890afd80709.example.net",
    ],
)
def test_labels_that_are_data_are_found(host):
    assert carries_data(host)
    assert carries_data(host + ".")


@pytest.mark.parametrize(
    "host",
    [
        "www.example.com",
        "docs.internal.tools.engineering.example.org",
        "k8s-default-ingress-4f1b2c3d5e-1234567890.eu-west-1.elb.amazonaws.com",
        "d111111abcdef8.cloudfront.net",
        "xn--mnchen-3ya.de",
        "node-17.rack-04.example.org",
        "x7k2mq9vr4sl8nw1.com",
        "10.0.0.1",
        "[2001:db8::1]",
        "",
    ],
)
def test_names_of_services_and_the_owners_own_part_are_not(host):
    assert not carries_data(host)
