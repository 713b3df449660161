"""The certificate authority in the state folder."""

from __future__ import annotations

import datetime as dt
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from proxy.errors import ConfigError
from proxy.identity.ca import Authority, fingerprint, system_roots


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_start_makes_a_p256_ca_whose_key_is_its_owners_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "state")
    certificate = authority.ensure()
    key = load_pem_private_key(authority.key_file.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert key.public_key() == certificate.public_key()
    assert mode(authority.key_file) == 0o600
    assert mode(authority.certificate_file) == mode(authority.bundle_file) == 0o644
    for public in (authority.certificate_file, authority.bundle_file):
        assert b"PRIVATE" not in public.read_bytes()


def test_the_certificate_may_sign_leaves_and_nothing_more(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).ensure()
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)
    assert certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    now = dt.datetime.now(dt.UTC)
    assert certificate.not_valid_before_utc < now - dt.timedelta(hours=12)
    assert now + dt.timedelta(days=365) < certificate.not_valid_after_utc < now + dt.timedelta(days=3650)


def test_a_second_start_uses_the_same_ca(tmp_path: Path) -> None:
    first = Authority(tmp_path).ensure()
    key = Authority(tmp_path).key_file.read_bytes()
    assert Authority(tmp_path).ensure() == first
    assert Authority(tmp_path).key_file.read_bytes() == key


def test_a_process_that_comes_second_takes_the_firsts_ca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    first = authority.ensure()
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: path != authority.key_file and exists(path))
    assert authority.ensure() == first


def test_public_files_that_were_lost_or_changed_come_back(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.ensure()
    pem = authority.certificate_file.read_bytes()
    authority.certificate_file.unlink()
    authority.bundle_file.write_bytes(b"old")
    authority.ensure()
    assert authority.certificate_file.read_bytes() == pem
    assert authority.bundle_file.read_bytes() == system_roots() + b"\n" + pem


def broken(kind: str, authority: Authority, other: Authority) -> bytes:
    key_and_certificate = authority.key_file.read_bytes()
    certificate = authority.certificate_file.read_bytes()
    return {
        "empty": b"",
        "garbage": b"garbage",
        "certificate alone": certificate,
        "key alone": key_and_certificate.replace(certificate, b""),
        "another's key": other.key_file.read_bytes().replace(other.certificate_file.read_bytes(), b"") + certificate,
    }[kind]


@pytest.mark.parametrize("kind", ["empty", "garbage", "certificate alone", "key alone", "another's key"])
def test_a_ca_that_cannot_be_used_is_named_with_the_way_out(kind: str, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    authority.ensure()
    other.ensure()
    authority.key_file.write_bytes(broken(kind, authority, other))
    with pytest.raises(ConfigError, match=r"mitmproxy-ca\.pem cannot be read .*restore it, or delete it"):
        authority.ensure()


def test_servers_are_verified_by_the_systems_roots_and_the_given_ones(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "state")
    authority.ensure()
    assert authority.upstream_roots(None).read_bytes() == system_roots()
    extra = authority.certificate_file
    both = authority.upstream_roots(extra).read_bytes()
    assert both == system_roots() + b"\n" + extra.read_bytes()
    assert both.count(b"BEGIN CERTIFICATE") == system_roots().count(b"BEGIN CERTIFICATE") + 1


@pytest.mark.parametrize("content", [None, b"", b"garbage"])
def test_roots_that_cannot_be_read_are_named(content: bytes | None, tmp_path: Path) -> None:
    extra = tmp_path / "corp.pem"
    if content is not None:
        extra.write_bytes(content)
    with pytest.raises(ConfigError, match=r"upstream_ca: .*corp\.pem"):
        Authority(tmp_path).upstream_roots(extra)


def test_a_fingerprint_is_written_as_people_compare_it(tmp_path: Path) -> None:
    shown = fingerprint(Authority(tmp_path).ensure())
    assert len(shown.split(":")) == 32
    assert shown == shown.upper()
