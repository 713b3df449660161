"""The key-encryption key: from a file, a variable or a command such as a KMS's, never from the database."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxy.errors import ConfigError
from proxy.system.secret_files import read_private

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY_BYTES: Final = 32
MIN_DIFFERENT: Final = 8
COMMAND_SECONDS: Final = 20.0
HINT: Final = "`openssl rand -hex 32` makes a key"


@dataclass(frozen=True, slots=True)
class KeyEncryptionKey:
    """A key that other keys are sealed with, and its name, which tells nothing of it."""

    secret: bytes = field(repr=False)

    @property
    def key_id(self) -> str:
        return hashlib.sha256(b"interlock key-encryption key\0" + self.secret).hexdigest()[:16]

    def derive(self, purpose: str) -> bytes:
        """Return the key for one purpose: what the user gave is never used itself."""
        return hmac.digest(self.secret, b"interlock fleet\0" + purpose.encode(), "sha256")


def read_kek(source: str, environ: Mapping[str, str]) -> KeyEncryptionKey:
    """Return the key that the setting `key_encryption_key` names. Raises ConfigError, which never repeats the key."""
    kind, _, where = source.partition(":")
    match kind:
        case "file":
            text = _from_file(Path(where).expanduser())
        case "env":
            text = environ.get(where, "")
        case "command":
            text = _from_command(where)
        case _:
            raise ConfigError("setting key_encryption_key: write file:PATH, env:NAME or command:PROGRAM")
    return KeyEncryptionKey(_decode(text.strip(), f"{kind} {where.split()[0] if kind == 'command' else where}"))


def _from_file(path: Path) -> str:
    try:
        return read_private(path).decode("ascii", "replace")
    except OSError as error:
        raise ConfigError(
            f"the key-encryption key in {str(path)!r} cannot be read: {error.strerror}; {HINT}, or name its file"
        ) from error


def _from_command(command: str) -> str:
    words = shlex.split(command)
    try:
        done = subprocess.run(  # noqa: S603  the owner of the settings chose it
            words, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        why = f"no answer within {COMMAND_SECONDS:.0f} s" if isinstance(error, subprocess.TimeoutExpired) else error
        raise ConfigError(f"the command {words[0]!r} of key_encryption_key failed: {why}") from error
    if done.returncode != 0:
        # Not its stdout: that may be the key.
        said = done.stderr.strip()[-400:]
        raise ConfigError(f"the command {words[0]!r} of key_encryption_key failed with {done.returncode}: {said}")
    return done.stdout


def _decode(text: str, source: str) -> bytes:
    if not text:
        raise ConfigError(f"key_encryption_key: there is no key in {source}; {HINT}")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        try:
            key = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
        except (binascii.Error, ValueError):
            key = b""
    if len(key) != KEY_BYTES or len(set(key)) < MIN_DIFFERENT:
        raise ConfigError(
            f"key_encryption_key: {source} gives no key of {KEY_BYTES} random bytes in hex or base64; {HINT}"
        )
    return key
