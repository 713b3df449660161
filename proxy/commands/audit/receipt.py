"""`interlock audit receipt`: proof of one call, for somebody who has nothing else of the trail."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import typer

from proxy.audit.reader import open_audit
from proxy.audit.receipt import Receipts
from proxy.audit.signed_checkpoints import read_evidence
from proxy.audit.signing_keys import AuditKeys
from proxy.commands.audit.query import find_entries
from proxy.commands.options import AsJson, takes, trail_settings
from proxy.commands.terminal import format_json
from proxy.config import Settings
from proxy.errors import AuditUnavailableError, ConfigError

EPILOG = "Example:  interlock audit receipt 0198c0de-7d31 > receipt.json"


@takes(trail_settings)
def receipt(
    settings: Settings,
    *,
    call: Annotated[
        str,
        typer.Argument(metavar="ID", help="A call's id (the audit id of a refusal) or an event's, or its beginning."),
    ],
    as_json: AsJson = False,  # noqa: ARG001  a receipt is JSON in any case
) -> None:
    """Print the receipt of one call as JSON: its events, and the proof that they are in the signed trail.

    `scripts/verify_receipt.py` checks it, with the public key alone. Exit code 1: there is no such call, or it is not
    in the store and covered by a checkpoint yet, or the trail around it is not what was signed.
    """
    typer.echo(format_json(asyncio.run(_receipt(settings, call))))


async def _receipt(settings: Settings, wanted: str) -> dict[str, Any]:
    async with open_audit(settings.postgres, settings.state_dir) as audit:
        found = await find_entries(audit, wanted)
        if audit.store is None:
            raise AuditUnavailableError("there is no store yet; a receipt is of events that were shipped there")
        evidence = await read_evidence(settings, audit.store)
        if evidence.broken:
            raise ConfigError(f"there is no receipt: a checkpoint is bad ({evidence.broken[0]})")
        keys = AuditKeys(settings.state_dir)
        made = Receipts(audit.store, evidence.evidence.writers, keys, settings.state_dir, time.time())
        call_id = found[0][1].get("call_id") or found[0][1]["event_id"]
        return await made.of_call(call_id, found)
