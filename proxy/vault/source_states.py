"""Whether the sources of credentials have a value now: for people, who are told why not, and never the value."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from proxy.core.vault import SHORTEST
from proxy.vault.sources import COMMAND_SECONDS, SourceError, fetch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxy.vault.vault_file import Entry, Source


def try_source(source: Source, environ: Mapping[str, str], seconds: float = COMMAND_SECONDS) -> int:
    """Ask a source once; return how many bytes its value has. Raises SourceError where it could not be put in."""
    size = len(fetch(source, environ, seconds).secret.reveal())
    if size < SHORTEST:
        raise SourceError(
            f"its value has fewer than {SHORTEST} bytes, and could not be told from other text in answers"
        )
    return size


def source_states(
    entries: Mapping[str, Entry], environ: Mapping[str, str], seconds: float = COMMAND_SECONDS
) -> dict[str, str | None]:
    """Try each source once, several at a time. Return for each name why it is unavailable, or None."""

    def why(entry: Entry) -> str | None:
        try:
            try_source(entry.source, environ, seconds)
        except SourceError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(max_workers=8) as pool:
        return dict(zip(entries, pool.map(why, entries.values()), strict=True))
