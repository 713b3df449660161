"""Reads checkpoints for the commands that compare events with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proxy.audit.checkpoints import Checkpoint, Signed, by_writer, read
from proxy.audit.pipeline import checkpoint_file
from proxy.audit.signing_keys import AuditKeys, read_public
from proxy.config import Settings

EXIT_BAD = 1


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
