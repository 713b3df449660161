"""Certificates that clients are shown: one for each host, made anew before it ends."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from mitmproxy.tls import TlsData

from addons.mitm import certificates
from addons.mitm.certificates import Certificates
from addons.mitm.fast.tls_contexts import CachedCertificates
from tests.support import tls_fixture as tls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from OpenSSL import SSL

DAY = 86_400.0


@pytest.fixture(params=[Certificates, CachedCertificates])
def addon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Certificates]:
    yield from tls.certificates(tmp_path, tls.Authority(tmp_path).file, request.param)


def begun(addon: Certificates, host: str) -> SSL.Connection:
    """Return the connection of a client that wants `host`."""
    context = tls.context()
    context.client.sni = host
    context.server = tls.server(host)
    begin = TlsData(context.client, context)
    addon.tls_start_client(begin)
    assert begin.ssl_conn
    return begin.ssl_conn


def shown(connection: SSL.Connection) -> int:
    """Return the number of the certificate that a client is shown."""
    certificate = connection.get_certificate()
    assert certificate
    return certificate.get_serial_number()


def test_a_certificate_that_ends_soon_is_made_anew(addon: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = begun(addon, "a.example"), begun(addon, "b.example")
    now = time.time()
    monkeypatch.setattr(certificates.time, "time", lambda: now + 180 * DAY)
    assert shown(begun(addon, "a.example")) == shown(first)
    monkeypatch.setattr(certificates.time, "time", lambda: now + 191 * DAY)
    renewed = begun(addon, "a.example")
    monkeypatch.undo()
    assert shown(renewed) != shown(first)
    assert shown(begun(addon, "a.example")) == shown(renewed)
    assert shown(begun(addon, "b.example")) == shown(other)
    assert len(addon.certstore.expire_queue) == 2


def test_no_request_is_answered_in_a_servers_name(addon: Certificates) -> None:
    assert addon.request is None


@pytest.mark.parametrize("asked", [None, "web.test."])
def test_a_server_is_asked_for_its_host_without_a_final_dot(addon: Certificates, asked: str | None) -> None:
    context = tls.context()
    context.client.sni = "web.test."
    context.server = tls.server("web.test.")
    context.server.sni = asked
    begin = TlsData(context.server, context)
    addon.tls_start_server(begin)
    assert begin.ssl_conn
    assert context.server.sni == "web.test"
