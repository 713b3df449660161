"""Whether the sources of credentials have a value now: for people, who are told why not, and never the value."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from proxy.errors import ConfigError
from proxy.vault.sources import COMMAND_SECONDS, SourceError, fetch
from proxy.vault.vault_file import CommandSource, EnvSource, VaultFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from proxy.vault.vault_file import Entry


def source_states(
    entries: Mapping[str, Entry], environ: Mapping[str, str], seconds: float = COMMAND_SECONDS
) -> dict[str, str | None]:
    """Try each source once, several at a time. Return for each name why it is unavailable, or None."""

    def why(entry: Entry) -> str | None:
        try:
            fetch(entry.source, environ, seconds)
        except SourceError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(max_workers=8) as pool:
        return dict(zip(entries, pool.map(why, entries.values()), strict=True))


def standing_problems(state_dir: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return which credentials are unavailable, as far as that shows without a command being run; and why.

    A variable that is not set here is no problem: the proxy's environment counts, which is another.
    """
    file = VaultFile(state_dir)
    try:
        entries = file.read().credentials
    except ConfigError as error:
        return {"*": str(error)}
    tried = {name: each for name, each in entries.items() if not isinstance(each.source, CommandSource | EnvSource)}
    return {name: why for name, why in source_states(tried, environ).items() if why is not None}
