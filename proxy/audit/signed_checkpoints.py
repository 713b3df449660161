"""The checkpoints of the settings: what was signed of each writer, and the last lines of their file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.audit.checkpoints import Checkpoint, Signed, by_writer, parse, read
from proxy.audit.pipeline import checkpoint_file
from proxy.audit.signing_keys import AuditKeys, read_public
from proxy.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from proxy.config import Settings

TAIL_BYTES: Final = 64 << 10


def read_checkpoints(
    settings: Settings, files: Sequence[Path] = (), public_keys: Sequence[Path] = (), until: float | None = None
) -> tuple[dict[str, Signed], list[str]]:
    """Return what was signed, by writer, and what is wrong with lines that are not valid.

    By default with the file and the keys of the settings. Heads that were signed after `until` are left out. Raises
    ConfigError where a file cannot be read.
    """
    chosen = files or [file for file in (checkpoint_file(settings),) if file.exists()]
    keys = read_public(public_keys) if public_keys else AuditKeys(settings.state_dir).public()
    found = [one for file in chosen for one in read(file, keys)]
    broken = [one for one in found if isinstance(one, str)]
    signed = [one for one in found if isinstance(one, Checkpoint)]
    # Rejected and pruned events are missing from an export of an earlier time as well: those always count.
    heard = (one for one in signed if until is None or one.kind != "head" or float(one.time) <= until)
    return by_writer(heard), broken


def valid_checkpoints(settings: Settings) -> list[Checkpoint]:
    """Return every valid checkpoint of the settings' file. Raises ConfigError where it cannot be read."""
    path = checkpoint_file(settings)
    found = read(path, AuditKeys(settings.state_dir).public()) if path.exists() else ()
    return [one for one in found if isinstance(one, Checkpoint)]


def last_checkpoints(settings: Settings) -> list[Checkpoint | str]:
    """Return the last checkpoints of the settings' file, newest first, or why one is not valid.

    Only the end of the file is read: it grows for as long as proxies run. Raises ConfigError where it cannot be read.
    """
    path = checkpoint_file(settings)
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"the checkpoints in {path} cannot be read ({error.strerror})") from error
    # The first line may be cut, and the last one is just being written.
    whole = lines[1 if size > TAIL_BYTES else 0 : -1]
    return list(parse(whole, str(path), AuditKeys(settings.state_dir).public()))[::-1]
