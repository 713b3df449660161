"""A session with a server is taken up for the name and the settings it was verified with, for a while, and no other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import trustme
from mitmproxy import certs, ctx
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from mitmproxy.tls import TlsData
from OpenSSL import SSL

from addons.mitm.fast.tls_sessions import MAX_SESSIONS, SECONDS, ServerTlsSessions
from tests.support import tls_fixture as tls

if TYPE_CHECKING:
    from pathlib import Path

    from mitmproxy.connection import Server

    from addons.mitm.certificates import Certificates


class Scene:
    def __init__(self, folder: Path, addon: Certificates, authority: tls.Authority) -> None:
        self.addon, self.authority, self.now = addon, authority, 0.0
        self.sessions = ServerTlsSessions(lambda: self.now)
        self.far = authority.server("a.test", "b.test")

    def connects(self, server: Server) -> bool:
        """Connect, and end; return whether a session was taken up."""
        start = TlsData(server, tls.context())
        start.context.client.alpn_offers = [b"http/1.1"]
        self.addon.tls_start_server(start)
        self.sessions.tls_start_server(start)
        assert start.ssl_conn is not None
        try:
            tls.shake(start.ssl_conn, tls.Far(self.far))
        except SSL.Error:
            self.sessions.tls_failed_server(start)
            raise
        self.sessions.tls_established_server(start)
        self.sessions.server_disconnected(ServerConnectionHookData(server=server, client=start.context.client))
        return bool(SSL._lib.SSL_session_reused(start.ssl_conn._ssl))


@pytest.fixture
def scene(tmp_path: Path):
    authority = tls.Authority(tmp_path)
    for addon in tls.certificates(tmp_path, authority.file):
        yield Scene(tmp_path, addon, authority)


def test_a_session_is_taken_up_for_the_same_name_and_settings_alone(scene: Scene, tmp_path: Path):
    assert [scene.connects(tls.server("a.test")) for _ in range(3)] == [False, True, True]
    assert not scene.connects(tls.server("b.test"))
    assert not scene.connects(tls.server("a.test", 8443))
    other = tls.server("a.test")
    other.alpn_offers = [b"h2"]
    assert not scene.connects(other)
    elsewhere = tmp_path / "other"
    elsewhere.mkdir()
    ctx.options.update(ssl_verify_upstream_trusted_ca=str(tls.Authority(elsewhere).file))
    with pytest.raises(SSL.Error, match="certificate verify failed"):
        scene.connects(tls.server("a.test"))


def test_a_certificate_is_verified_again_after_a_while_however_often_its_session_was_taken_up(scene: Scene):
    assert not scene.connects(tls.server("a.test"))
    for _ in range(3):
        scene.now += SECONDS / 4
        assert scene.connects(tls.server("a.test"))
    scene.now += SECONDS / 4
    assert not scene.connects(tls.server("a.test"))


def test_a_session_ends_with_the_certificate_that_was_verified(scene: Scene):
    ends = datetime.now(UTC) + timedelta(seconds=SECONDS / 2)
    leaf = trustme.CA().issue_cert("a.test", not_after=ends)
    chain = [certs.Cert.from_pem(leaf.cert_chain_pems[0].bytes())]
    for _ in range(2):
        server = tls.server("a.test")
        server.certificate_list = chain
        scene.connects(server)
    scene.now += SECONDS / 2 - 10
    assert scene.connects(tls.server("a.test"))
    scene.now += 10
    assert not scene.connects(tls.server("a.test"))


def test_a_name_that_was_not_verified_has_no_session(scene: Scene):
    assert not scene.connects(tls.server("a.test"))
    for _ in range(2):
        with pytest.raises(SSL.Error, match="certificate verify failed"):
            scene.connects(tls.server("c.test"))
    assert scene.connects(tls.server("a.test"))


def test_so_many_sessions_are_kept_and_no_more(scene: Scene):
    scene.connects(tls.server("a.test"))
    ((place, kept),) = scene.sessions._stored.items()
    scene.sessions._stored.update({place._replace(name=str(number)): kept for number in range(MAX_SESSIONS)})
    scene.connects(tls.server("b.test"))
    assert len(scene.sessions._stored) == 1
