"""Where values come from: files, the proxy's environment, commands. No message of an error quotes a value."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import stat
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from proxy.core.vault import Secret
from proxy.vault.placeholder import find
from proxy.vault.vault_file import CommandSource, EnvSource, FileSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.vault.vault_file import Source

    type Signature = tuple[int, ...]

MAX_VALUE: Final = 64 << 10
MAX_FILE: Final = 1 << 20
COMMAND_SECONDS: Final = 10.0
TORN_READS: Final = 3
# What programs such as `pass`, `op` and the clouds' need to find themselves and their user; nothing secret.
USUAL: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME")


class SourceError(Exception):
    """A source gave no value that can be used; the message says why, and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A value, and what the file was like that it was read from."""

    secret: Secret
    signature: Signature | None = None


def fetch(source: Source, environ: Mapping[str, str], seconds: float = COMMAND_SECONDS) -> Fetched:
    """Return a source's value as it is now; blocks. Raises SourceError."""
    match source:
        case FileSource():
            data, signature = _read_file(source.path)
            value = data if source.key is None else _entry(data, source.key)
            return Fetched(Secret(usable(value)), signature)
        case EnvSource():
            return Fetched(Secret(usable(_variable(source.variable, environ))))
        case CommandSource():
            return Fetched(Secret(usable(_run(source, environ, seconds))))


def usable(value: bytes) -> bytes:
    """Return a value without its last line end. Raises SourceError if it cannot stand in a request."""
    value = value.removesuffix(b"\n").removesuffix(b"\r")
    if not value:
        raise SourceError("it is empty")
    if len(value) > MAX_VALUE:
        raise SourceError(f"it has more than {MAX_VALUE >> 10} KiB")
    if any(byte in value for byte in (b"\r", b"\n", b"\0")):
        raise SourceError("it has more than one line, or a NUL; name the entry with --key if the file has several")
    if find(value.decode(errors="replace")):
        raise SourceError("it is a placeholder, not a credential")
    return value


def signature_of(path: str) -> Signature | None:
    """Return what a file is like, behind all symbolic links; None where that cannot be said."""
    try:
        return _signature(os.stat(path))  # noqa: PTH116  on every request: no Path is made
    except (OSError, ValueError):
        return None


def _signature(about: os.stat_result) -> Signature:
    return about.st_dev, about.st_ino, about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_mode, about.st_uid


def _read_file(path: str) -> tuple[bytes, Signature]:
    try:
        for _ in range(TORN_READS):
            data, before, after = _read_once(path)
            if before == after:
                return data, before
    except OSError as error:
        raise SourceError(f"the file {path} cannot be read: {error.strerror}") from None
    raise SourceError(f"the file {path} is being written all the time")


def _read_once(path: str) -> tuple[bytes, Signature, Signature]:
    # Without waiting: a FIFO in the file's place would otherwise hold the reader for ever.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise SourceError(f"{path} is no regular file")
        data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise SourceError(f"the file {path} has more than {MAX_FILE >> 20} MiB")
        return data, _signature(about), _signature(os.fstat(handle))


def _entry(data: bytes, key: str) -> bytes:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise SourceError("the file is no UTF-8 text, so it has no keys") from None
    if text.lstrip().startswith("{"):
        return _json_entry(text, key)
    return _dotenv_entry(text, key)


def _json_entry(text: str, key: str) -> bytes:
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise SourceError("the file is no well-formed JSON, or names a key twice") from None
    for part in (key,) if key in found else key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if not isinstance(found, str):
        raise SourceError(f"the file has no text under the key {key!r}")
    return found.encode(errors="surrogatepass")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key twice")
    return made


def _dotenv_entry(text: str, key: str) -> bytes:
    found = []
    for line in text.split("\n"):
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and name.strip() == key:
            found.append(_unquoted(value.strip()))
    if len(found) != 1:
        how = "twice" if found else "not"
        raise SourceError(f"the key {key!r} stands {how} in the file, as JSON or as {key}=…")
    return found[0].encode()


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value


def _variable(name: str, environ: Mapping[str, str]) -> bytes:
    if name not in environ:
        raise SourceError(f"the variable {name} is not set")
    return os.fsencode(environ[name])


def _run(source: CommandSource, environ: Mapping[str, str], seconds: float) -> bytes:
    program = source.argv[0]
    given = {name: environ[name] for name in (*USUAL, *source.environment) if name in environ}
    try:
        process = subprocess.Popen(  # noqa: S603  an operator named it, and no shell runs it
            source.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # Nobody reads it: what a program complains of may quote what it was asked for.
            stderr=subprocess.DEVNULL,
            env=given,
            cwd="/",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no command"
        raise SourceError(f"the command {program} cannot be started: {why}") from None
    try:
        return _output(process, program, time.monotonic() + seconds, seconds)
    finally:
        _end(process)


def _output(process: subprocess.Popen[bytes], program: str, end: float, seconds: float) -> bytes:
    assert process.stdout is not None
    read, late = bytearray(), SourceError(f"the command {program} took longer than {seconds:g} s")
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, end - time.monotonic())):
            piece = os.read(process.stdout.fileno(), MAX_VALUE)
            read += piece
            if len(read) > MAX_VALUE + 2:
                raise SourceError(f"the command {program} printed more than {MAX_VALUE >> 10} KiB")
            if not piece:
                break
        else:
            raise late
    try:
        code = process.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise late from None
    if code:
        raise SourceError(f"the command {program} ended with exit code {code}; run it by hand to see why")
    return bytes(read)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End whatever the command left: the whole group, and the pipe."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
