"""Keys of the roll-out: made once, private, and trusted only where somebody put them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from proxy.errors import ConfigError
from proxy.rollout.keys import default_key_file, default_trusted, make_key, read_key, trust, trusted_keys
from proxy.rollout.step import sign, verify
from tests.rollout.fixtures import step


def test_a_key_is_made_once_and_what_it_signs_is_trusted(tmp_path: Path) -> None:
    path, folder = default_key_file(tmp_path), default_trusted(tmp_path)
    public = make_key(path)
    assert make_key(path) == public or make_key(path).key_id == public.key_id
    assert path.stat().st_mode & 0o777 == 0o600
    assert trusted_keys(folder) == {}
    file = trust(public, folder)
    assert verify(sign(step(), *read_key(path)), trusted_keys(folder)) == step()
    assert set(trusted_keys(file)) == {public.key_id}


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    make_key(path)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_key(path)


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    with pytest.raises(ConfigError, match="interlock policy key"):
        read_key(path)
    path.touch(mode=0o600)
    path.write_text("no key")
    with pytest.raises(ConfigError, match="private key"):
        read_key(path)
    other = ec.generate_private_key(ec.SECP256R1())
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(other.private_bytes(*form))
    with pytest.raises(ConfigError, match="Ed25519"):
        read_key(path)
    with pytest.raises(ConfigError, match="public key"):
        trusted_keys(path)
