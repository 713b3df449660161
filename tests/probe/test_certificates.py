"""Certificates that a client believes which trusts the probe's authority."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest

from proxy.probe.certificates import ProbeAuthority
from tests.support.timeouts import PATIENCE


@pytest.mark.parametrize("name", ["secret.example.com", "192.0.2.7", "2001:db8::7", "a" * 60 + ".example.org"])
def test_a_client_that_trusts_the_authority_believes_any_name(name: str) -> None:
    authority = ProbeAuthority()
    context = ssl.create_default_context(cadata=authority.pem.decode())
    here, there = socket.socketpair()
    served = threading.Thread(target=lambda: authority.context(name).wrap_socket(there, server_side=True).close())
    served.start()
    with context.wrap_socket(here, server_hostname=name) as client:
        assert client.getpeercert()
    served.join(PATIENCE)


def test_a_client_that_does_not_trust_it_goes() -> None:
    authority = ProbeAuthority()
    here, there = socket.socketpair()

    def serve() -> None:
        with pytest.raises(OSError):
            authority.context("a.example").wrap_socket(there, server_side=True)

    served = threading.Thread(target=serve)
    served.start()
    with pytest.raises(ssl.SSLCertVerificationError):
        ssl.create_default_context().wrap_socket(here, server_hostname="a.example")
    here.close()
    served.join(PATIENCE)


def test_a_name_keeps_its_certificate() -> None:
    authority = ProbeAuthority()
    assert authority.context("a.example") is authority.context("a.example")
