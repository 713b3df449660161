"""The keys that sign checkpoints: private to their owner, replaced without losing what they vouched for."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from proxy.audit.signing_keys import AuditKeys, read_public
from proxy.errors import ConfigError


def test_the_first_use_makes_a_key_of_the_owners_alone(tmp_path: Path) -> None:
    key_id, key = AuditKeys(tmp_path).signer()
    (public,) = AuditKeys(tmp_path).public()
    assert public.key_id == key_id
    assert public.verifies(key.sign(b"text"), b"text")
    assert not public.verifies(key.sign(b"text"), b"other")
    private = tmp_path / "keys" / "audit-signing.pem"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert AuditKeys(tmp_path).signer()[0] == key_id


def test_a_rotation_destroys_the_old_key_and_keeps_its_public_half(tmp_path: Path) -> None:
    keys = AuditKeys(tmp_path)
    old_id, old = keys.signer()
    new_id = keys.rotate()
    assert keys.signer()[0] == new_id != old_id
    found = {key.key_id: key for key in keys.public()}
    assert set(found) == {old_id, new_id}
    assert found[old_id].verifies(old.sign(b"x"), b"x")


def test_a_rotation_may_come_first(tmp_path: Path) -> None:
    key_id = AuditKeys(tmp_path).rotate()
    assert AuditKeys(tmp_path).signer()[0] == key_id


@pytest.mark.parametrize("content", [b"nonsense", b""])
def test_a_file_that_is_no_key_is_told(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "keys" / "audit-signing.pem"
    file.parent.mkdir()
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=r"audit-signing\.pem is no key"):
        AuditKeys(tmp_path).signer()
    with pytest.raises(ConfigError, match="cannot be read as a public key"):
        read_public([file])


def test_a_key_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    AuditKeys(tmp_path).signer()
    (tmp_path / "keys" / "audit-signing.pem").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        AuditKeys(tmp_path).signer()


def test_a_public_key_of_another_kind_is_told(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    other = ec.generate_private_key(ec.SECP256R1())
    file = tmp_path / "other.pem"
    file.write_bytes(other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(ConfigError, match="no Ed25519 public key"):
        read_public([file])
    private = tmp_path / "keys" / "audit-signing.pem"
    private.parent.mkdir()
    private.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    private.chmod(0o600)
    with pytest.raises(ConfigError, match="no Ed25519 key"):
        AuditKeys(tmp_path).signer()
