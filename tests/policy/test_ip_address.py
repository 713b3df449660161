"""Addresses, and the addresses inside them."""

import ipaddress

import pytest

from proxy.policy.ip_address import METADATA_ADDRESSES, classes_of, classes_of_name, parse_address, unwrap


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("[::1]", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("example.com", None),
        ("010.0.0.1", None),
        ("10.0.0.256", None),
        ("::g", None),
        ("", None),
    ],
)
def test_an_address_is_read_in_its_standard_form_alone(text, address):
    found = parse_address(text)
    assert found == (None if address is None else ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "text",
    [
        "::ffff:169.254.169.254",
        "::169.254.169.254",
        "::ffff:0:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1:a9fe:00a9:fe00::",
        "2002:a9fe:a9fe::",
        "fe80::5efe:169.254.169.254",
        "2001:db8::200:5efe:a9fe:a9fe",
        "2001:0:a9fe:a9fe::",
    ],
)
def test_an_ipv4_address_inside_an_ipv6_address_is_seen(text):
    found = unwrap(ipaddress.ip_address(text))
    assert ipaddress.ip_address("169.254.169.254") in found
    assert found[0] == ipaddress.ip_address(text)


@pytest.mark.parametrize("text", ["::1", "::", "2606:4700::1111", "8.8.8.8"])
def test_any_other_address_is_itself_alone(text):
    assert unwrap(ipaddress.ip_address(text)) == (ipaddress.ip_address(text),)


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("8.8.8.8", {"public"}),
        ("10.0.0.1", {"private"}),
        ("100.64.0.1", {"private"}),
        ("fd00::1", {"private"}),
        ("127.0.0.1", {"loopback"}),
        ("0.0.0.0", {"unspecified", "loopback"}),
        ("0.1.2.3", {"unspecified", "loopback"}),
        ("169.254.1.1", {"link_local"}),
        ("169.254.169.254", {"metadata", "link_local"}),
        ("fd00:ec2::254", {"metadata", "private"}),
        ("168.63.129.16", {"metadata"}),
        ("224.0.0.1", {"multicast"}),
        ("240.0.0.1", {"reserved"}),
        ("2001:db8::1", {"reserved"}),
    ],
)
def test_an_address_has_every_class_that_it_belongs_to(text, classes):
    assert classes_of(ipaddress.ip_address(text)) == classes


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("localhost", {"loopback"}),
        ("app.localhost", {"loopback"}),
        ("x.lvh.me", {"loopback"}),
        ("metadata.google.internal", {"metadata"}),
        ("example.com", set()),
        ("notlocalhost", set()),
    ],
)
def test_names_that_are_known_to_lead_inside_have_a_class(name, classes):
    assert classes_of_name(name) == classes


def test_every_metadata_address_is_of_that_class_and_none_is_public():
    for address in METADATA_ADDRESSES:
        assert "metadata" in classes_of(address)
        assert "public" not in classes_of(address)
