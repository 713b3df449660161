"""Deletes old events in such a way that the rest can still be verified.

What is deleted is the beginning of a chain: up to the first event that is young enough to stay. It is verified first,
because somebody who may write to the database could else give an event an old time, and have it deleted and the hole
signed for. Of a writer whose events do not verify, nothing is deleted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.audit.chain_reader import START, StoreChains
from proxy.audit.verify import ChainProblem, ChainVerifier
from proxy.audit.writers import Registrar
from proxy.errors import AuditUnavailableError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from proxy.audit.checkpoint_signer import CheckpointSigner
    from proxy.audit.checkpoints import Signed
    from proxy.audit.event_store import Events
    from proxy.core.event import Head

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Pruned:
    """The result of pruning: how many events are gone, and why those of some writers are not."""

    gone: int
    problems: Sequence[ChainProblem] = ()


async def prune(
    store: Events,
    before: float,
    signer: CheckpointSigner,
    *,
    signed: Mapping[str, Signed] | None = None,
    force: bool = False,
    step: float | None = None,
    archive: Callable[[Sequence[Head]], Awaitable[object]] | None = None,
    clock: Callable[[], float] = time.time,
    progress: Callable[[int], None] = lambda _: None,
) -> Pruned:
    """Delete what happened before a time, the beginning of each chain; `progress` is called with counts of events.

    With a `step`, no more is deleted than that many seconds' worth of each chain. `signed` is what checkpoints say; by
    default those of the signer's own file. With `force`, nothing is verified. `archive` is given what will be deleted,
    and raises where it could not keep it. Raises AuditUnavailableError where
    nothing was deleted, also because there is a writer that cannot be verified.
    """
    try:
        known = signer.signed() if signed is None else signed
    except ConfigError as error:
        raise AuditUnavailableError(f"nothing was pruned: {error}") from error
    chains = StoreChains(store)
    ends = [await chains.last_old(writer, before, clock() + DAY, step) for writer in await chains.heads()]
    heads = [head for head in ends if head is not None]
    problems: list[ChainProblem] = []
    if not force:
        _require_signatures(heads, known)
        found = {head: await _verify(store, head, known[head.writer], progress) for head in heads}
        problems = [problem for problem in found.values() if problem is not None]
        heads = [head for head in heads if found[head] is None]
    if archive is not None:
        if (loose := await chains.unchained()) is not None:
            raise AuditUnavailableError(f"nothing was pruned: event {loose} is of no chain and cannot be archived")
        await archive(heads)
    # Signed before anything is deleted: events that are gone without a signature look like tampering.
    if heads and not signer.sign("pruned", heads):
        raise AuditUnavailableError(f"nothing was pruned: no checkpoint of it could be written ({signer.problem})")
    await Registrar(store, signer).deliver()
    return Pruned(await store.prune(before, heads), problems)


def _require_signatures(heads: Sequence[Head], known: Mapping[str, Signed]) -> None:
    """Raise AuditUnavailableError where events would be deleted that no checkpoint vouches for."""
    for head in heads:
        last = known[head.writer].last if head.writer in known else None
        if last is None or last < head.seq:
            what = (
                "no checkpoint that can be trusted covers"
                if last is None
                else f"no checkpoint past event {last} covers"
            )
            raise AuditUnavailableError(
                f"nothing was pruned: {what} writer {head.writer}, which has old events up to number {head.seq}. "
                "It may be of another machine: give that machine's file with --checkpoints and its key with "
                "--public-key, or delete them unverified with --force"
            )


async def _verify(store: Events, head: Head, signed: Signed, progress: Callable[[int], None]) -> ChainProblem | None:
    """Verify a chain up to `head` and on to the next signature; return the first problem."""
    walk, chains, after = ChainVerifier(head.writer, signed), StoreChains(store), START
    until = min((seq for seq in signed.links if seq >= head.seq), default=head.seq)
    while events := await chains.page(head.writer, after):
        for event in events:
            if (event.entry.seq or 0) > until:
                return None
            if (problem := walk.check(event)) is not None:
                # Behind the head there may be events that have not been shipped yet.
                return None if problem.what == "missing" and (problem.seq or 0) > head.seq else problem
        after = events[-1].position
        progress(len(events))
    return None
