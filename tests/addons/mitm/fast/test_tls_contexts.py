"""OpenSSL contexts are one for each certificate; tests/addons/mitm/test_certificates.py has what both kinds do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from addons.mitm.fast import tls_contexts
from addons.mitm.fast.tls_contexts import CachedCertificates
from tests.addons.mitm.test_certificates import begun, shown
from tests.support import tls_fixture as tls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from addons.mitm.certificates import Certificates


@pytest.fixture
def addon(tmp_path: Path) -> Iterator[Certificates]:
    yield from tls.certificates(tmp_path, tls.Authority(tmp_path).file, CachedCertificates)


def test_connections_to_a_host_are_shown_one_certificate(addon: Certificates) -> None:
    first, again, other = (begun(addon, host) for host in ("a.example", "a.example", "b.example"))
    assert first.get_context() is again.get_context()
    assert other.get_context() is not first.get_context()
    assert shown(first) == shown(again) != shown(other)


def test_the_contexts_are_bounded(addon: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_contexts, "MAX_CONTEXTS", 2)
    first = begun(addon, "a.example")
    for host in ("b.example", "c.example"):
        begun(addon, host)
    assert isinstance(addon, CachedCertificates)
    assert len(addon._contexts) == 1
    again = begun(addon, "a.example")
    assert again.get_context() is not first.get_context()
    assert shown(again) == shown(first)
