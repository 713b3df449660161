"""`interlock flows`: which labels agents carry, and clearing them."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proxy.audit.restored import open_run_log
from proxy.commands.options import AsJson, ConfigFile, DatabaseUrl, StateDir, trail_settings
from proxy.commands.terminal import escaped, print_json_lines, print_note, print_table
from proxy.core.flows import Mark
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.store.flow_store import FlowMarks, live_marks
from proxy.store.open_store import open_database, store_exists

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from proxy.config import Settings

app = typer.Typer(help="Show and clear the labels that agents carry.", no_args_is_help=True)
Agent = Annotated[str, typer.Argument(help="The agent's name.")]
EMPTY = "No labels: no agent has read anything that a flow of the policy asks about."


@app.command(epilog="Example:  interlock flows show bot --json")
def show(
    agent: Annotated[str | None, typer.Argument(help="The agent's name; default: every agent with labels.")] = None,
    database_url: DatabaseUrl = None,
    state_dir: StateDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """List the live labels of an agent: the call that brought each, and how long it lasts."""
    settings, now = trail_settings(database_url, state_dir, config), time.time()

    async def read(marks: FlowMarks) -> Sequence[Mark]:
        agents = [agent] if agent is not None else await marks.agents(now)
        return [mark for name in agents for mark in live_marks((await marks.read(name, 0, now)).entries)]

    nothing: Sequence[Mark] = ()
    found = _with_marks(settings, read, nothing)
    if as_json:
        print_json_lines(_data(mark, now) for mark in found)
        return
    rows = [
        (
            *(mark.agent, ", ".join(map(_label, mark.labels)), mark.server, escaped(mark.tool or "")),
            *(mark.call_id, _left(mark.expires_at - now), _prints(mark)),
        )
        for mark in found
    ]
    print_table(("agent", "labels", "server", "tool", "audit id", "time left", "fingerprints"), rows, EMPTY)


@app.command(epilog="Example:  interlock flows clear bot --label untrusted --reason 'checked the mail'")
def clear(
    agent: Agent,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is recorded.")],
    label: Annotated[str | None, typer.Option("--label", help="Only marks with this label; default: all.")] = None,
    database_url: DatabaseUrl = None,
    state_dir: StateDir = None,
    config: ConfigFile = None,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """End an agent's labels before their time: what it read does not stop its calls any more."""
    settings, now, who = trail_settings(database_url, state_dir, config), time.time(), getpass.getuser()
    # Recorded first: what cannot be recorded is not cleared.
    detail = {"label": label, "by": who, "reason": reason}
    with contextlib.closing(open_run_log(settings)) as log:
        event = AuditEvent(event_id=new_id(), kind="labels_cleared", time=now, agent=agent, detail=detail)
        log.record_later(event)
    cleared = _with_marks(settings, lambda marks: marks.clear(agent, label, who, now), 0)
    if as_json:
        print_json_lines([{"agent": agent, "label": label, "cleared": cleared}])
        return
    print_note(f"Cleared: {cleared} of {escaped(agent)}")


def _with_marks[T](settings: Settings, work: Callable[[FlowMarks], Awaitable[T]], otherwise: T) -> T:
    """Return what `work` makes of the store of marks; `otherwise` where there is none yet."""
    if not store_exists(settings.postgres, settings.state_dir):
        return otherwise

    async def run() -> T:
        database = open_database(settings.postgres, settings.state_dir)
        try:
            return await work(FlowMarks(database))
        finally:
            await database.close()

    return asyncio.run(run())


def _data(mark: Mark, now: float) -> dict[str, Any]:
    named = {"agent": mark.agent, **mark.source(), "labels": [_label(label) for label in mark.labels]}
    seconds = round(mark.expires_at - now, 3)
    return {**named, "session": mark.session, "trace": mark.trace, "seconds_left": seconds, "complete": mark.complete}


def _label(label: str) -> str:
    return "(a call that a rule asks about)" if label.startswith("#") else label


def _prints(mark: Mark) -> str:
    count = max(0, len(mark.shingles) // 8 - 1) + len(mark.values) // 16
    return str(count) if mark.complete else f"{count}, not all of it"


def _left(seconds: float) -> str:
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"
