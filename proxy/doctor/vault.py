"""Checks of credentials by reference: their file, and the sources of their values. No command is run."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from proxy.doctor.findings import CheckResult, fail, ok, warn
from proxy.errors import ConfigError
from proxy.system.terminal_text import count
from proxy.vault.source_files import exposure
from proxy.vault.source_states import source_states
from proxy.vault.vault_file import CommandSource, FileSource, VaultFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from proxy.vault.vault_file import Entry

CHECK = "vault"
REFUSED = "requests with the placeholder are refused meanwhile"


def sources(state_dir: Path) -> Iterator[CheckResult]:
    """Yield what is wrong with credentials and their sources."""
    try:
        entries = VaultFile(state_dir).read().credentials
    except ConfigError as error:
        yield fail(CHECK, str(error), "while it cannot be read, no credential is given out")
        return
    problems = [*_unreadable(entries), *(each for name, one in entries.items() for each in _doubts(name, one))]
    yield from problems
    if not problems:
        yield ok(CHECK, f"{count(len(entries), 'credential')}; `interlock vault test` asks commands as well")


def _unreadable(entries: Mapping[str, Entry]) -> Iterator[CheckResult]:
    # A variable is the proxy's, which has another environment; a command may ask a person for something.
    files = {name: entry for name, entry in entries.items() if isinstance(entry.source, FileSource)}
    for name, why in source_states(files, {}).items():
        if why is not None:
            yield fail(CHECK, f"credential {name}: {why}", REFUSED)


def _doubts(name: str, entry: Entry) -> Iterator[CheckResult]:
    match entry.source:
        case FileSource(path=path):
            if (open_to := exposure(path)) is not None:
                yield warn(CHECK, f"credential {name}: {open_to[0]}", open_to[1])
        case CommandSource(argv=(program, *_)):
            if shutil.which(program) is None:
                yield fail(CHECK, f"credential {name}: there is no program {program}", REFUSED)
        case _:
            pass
    if not entry.bindings.hosts:
        mend = f"`interlock vault bind {name} --host HOST`"
        yield warn(CHECK, f"credential {name} is bound to no host and goes nowhere", mend)
