"""Builds the gate and what it needs from the settings; `interlock up` and `interlock run` share it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from typing import TYPE_CHECKING

import structlog

from proxy.audit.pipeline import AuditPipeline
from proxy.config import COMMIT_SECRET
from proxy.core.ids import new_id
from proxy.core.model import AuditEvent
from proxy.errors import StoreUnavailableError
from proxy.flows.fingerprint import KEY_BYTES as FLOW_KEY_BYTES
from proxy.gate.gate import Gate, OpenFlows
from proxy.gate.hold import HoldTimes
from proxy.gate.limits import CallLimits
from proxy.gate.tool_catalog import ToolCatalog
from proxy.gate.two_phase import TwoPhase
from proxy.identity.token_file import OperatorTokens
from proxy.metrics.counters import WAITING
from proxy.metrics.timed_database import TimedDatabase
from proxy.policy.rules import ExternalRule
from proxy.runtime.halt_watcher import HaltWatcher, read_halts
from proxy.runtime.lead_note import LeadNote
from proxy.runtime.outside_services import open_services
from proxy.runtime.pin_watcher import watch_approvals
from proxy.runtime.preload import Preloaded, preload
from proxy.store.fleet_store import CHANNEL as FLEET_CHANNEL
from proxy.store.fleet_store import FleetStore
from proxy.store.flow_store import FlowMarks
from proxy.store.flow_windows import WINDOWS_FILE, WindowFile
from proxy.store.halt_file import HaltFile
from proxy.store.halt_store import CHANNEL as HALTS_CHANNEL
from proxy.store.halt_store import Halts
from proxy.store.limit_store_sqlite import LIMITS_FILE, SqliteLimits
from proxy.store.open_store import check_at_start, open_database, open_listener
from proxy.store.pin_files import PinFiles
from proxy.store.proposal_store import Proposals
from proxy.store.rollout_store import CHANNEL as POLICY_CHANNEL
from proxy.store.shared_calls import SharedCalls as LocalCalls
from proxy.system.memory_dumps import keep_out_of_dumps
from proxy.system.replica_name import replica_name
from proxy.system.secret_files import read_or_make_key
from proxy.twophase.keys import open_keys
from proxy.vault.live_vault import LiveVault
from proxy.wire.sse_ping_carrier import KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from proxy.audit.local_log import LocalLog
    from proxy.config import Settings
    from proxy.core.halts import Halt
    from proxy.core.interfaces import EventSink, SharedCalls
    from proxy.core.limits import LimitStore
    from proxy.core.vault import Vault
    from proxy.fleet.open_state import Fleet
    from proxy.fleet.watcher import FleetWatcher
    from proxy.gate.halts import ActiveHalts
    from proxy.metrics.counters import WorkerCounters
    from proxy.notify.notifier import Notifier
    from proxy.runtime.policy_follower import PolicyFollower
    from proxy.store.database import Database
    from proxy.store.postgres_listen import PostgresListener
    from proxy.store.replica_calls import ReplicaCalls
    from proxy.twophase.sampler import Sampler

log = structlog.get_logger("interlock.flows")
READ_SECONDS = 1.0
ASK_SECONDS = 2.0  # for what replicas share
STORE_TRY_SECONDS = 4.0  # between two, and for each: so /readyz knows within 10 s
SWEEP_SECONDS = 60.0


class Components:
    """The policy, the audit pipeline, the pins, the stores, and the gate. Create it inside a running event loop.

    `tools_changed` is called with a server (None: all) whose tools clients should list again; `reloaded`, after each
    attempt to load the policy. `server` is set where the gate serves one server only (stdio). `wrap_sink` may put
    another sink in front. One of several workers has the `lead`: it records what all of them notice. `console` is the
    URL of the console that runs beside the gate; it counts where the settings name none.
    """

    def __init__(
        self,
        settings: Settings,
        open_sink: Callable[[], LocalLog],
        tools_changed: Callable[[str | None], None],
        reloaded: Callable[[], None] = lambda: None,
        server: str | None = None,
        preloaded: Preloaded | None = None,
        wrap_sink: Callable[[EventSink], EventSink] = lambda sink: sink,
        *,
        lead: bool = True,
        shared_calls: SharedCalls | None = None,
        console: str | None = None,
        counters: WorkerCounters | None = None,
        logs: Sequence[int] = (1,),
        resting: Database | None = None,
        vault: Vault | None = None,
    ) -> None:
        self._tools_changed = tools_changed
        self.vault = vault or LiveVault(settings.state_dir)
        self._on_reload = reloaded
        self._server = server
        self.lead = lead
        self._settings = settings
        preloaded = preloaded or preload(settings)
        self.policy, self.masker = preloaded.policy, preloaded.masker
        self.policy.on_change = self._policy_reloaded
        self.audit = AuditPipeline(
            settings, open_sink(), adopts_all=server is None, logs=logs, resting=resting, lead=lead
        )
        self.sink = wrap_sink(self.audit.sink)
        self.pins = preloaded.fleet.pins() if preloaded.fleet else PinFiles(settings.state_dir)
        self.store_problem: str | None = None  # why calls of two-phase rules are refused, if so
        self._database = open_database(settings.postgres, settings.state_dir, connections=settings.database_connections)
        # What asks all the time does so one after the other: else every worker would hold several connections.
        upkeep = settings.postgres and (resting or open_database(settings.postgres, settings.state_dir, connections=1))
        self._upkeep = upkeep or self._database
        self._rests = resting is not None
        self._lead_note = LeadNote(settings.state_dir, lambda: self.lead or not self._rests)
        self._counters = counters
        timed = self._database if counters is None else TimedDatabase(self._database, counters)
        self.store = Proposals(timed)
        self.fleet = self._open_fleet(settings, preloaded.fleet)
        self.follower = self._open_follower(preloaded)
        self.sampler = _open_sampler(settings)
        self.operators = OperatorTokens(settings.state_dir)
        if preloaded.fleet is None:  # a fleet has its own: another here would be one that no other replica knows
            self.operators.ensure()
        catalog = ToolCatalog(policy=self.policy.current, pins=self.pins)
        self.two_phase = self._open_two_phase(settings, catalog, settings.console_url or console)
        self.limits = CallLimits(open_limits(settings, timed, self._upkeep if lead else None))
        self.halt_file, self.halt_store = HaltFile(settings.state_dir), Halts(self._upkeep)
        halts = read_halts(settings.state_dir)
        self.halt_watcher = HaltWatcher(halts, self.halt_file, self.halt_store, self._halts_changed)
        self.halt_watcher.is_followed = self._lead_note.is_followed
        self._listener = self._open_listener()
        self.notifier = _open_notifier(settings, self._database, self.two_phase)
        self.marks = open_marks(settings, timed)
        self.services = open_services(settings)
        self._tell_of_services()
        self.gate = self._open_gate(settings, catalog, halts, shared_calls)

    def _open_fleet(self, settings: Settings, fleet: Fleet | None) -> FleetWatcher | None:
        if fleet is None:
            return None
        from proxy.fleet.watcher import FleetWatcher  # noqa: PLC0415  for replicas, and slow to import
        from proxy.runtime.fleet_report import FleetReport  # noqa: PLC0415

        speaks = self.lead and self._server is None
        report = FleetReport(settings, fleet, lambda: self.policy.current().version, lambda: self.problem)
        # Policies that are pushed come to one replica after the other on purpose, and are verified when they come.
        from_files = settings.policy_source == "file"
        store = FleetStore(self._upkeep)
        said = lambda: report.replica() if self.lead else None  # noqa: E731  until another process has taken over
        watcher = FleetWatcher(fleet, store, said if speaks else None, same_policy=from_files)
        watcher.followed = self._lead_note.followed
        return watcher

    @property
    def problem(self) -> str | None:
        """Why this process is not ready, as far as it knows itself."""
        fleet = self.fleet.problem if self.fleet is not None else None
        return fleet or self.policy_problem or self.audit.problem or self.store_problem

    def _open_follower(self, preloaded: Preloaded) -> PolicyFollower | None:
        """Return what follows pushed policies, where they count; it sees every event from here on."""
        if preloaded.pushed is None:
            return None
        from proxy.runtime.policy_follower import TallySink  # noqa: PLC0415  for those who push
        from proxy.runtime.pushed_start import open_follower  # noqa: PLC0415

        where = (self._settings, self._upkeep, preloaded.pushed, self.sink)
        follower = open_follower(*where, lambda: self.policy.current().version)
        self.sink = TallySink(self.sink, follower.tally)
        if self.fleet is not None:
            self.fleet.changed = follower.tell  # a key that signed a step may be trusted since just now
        return follower

    @property
    def policy_problem(self) -> str | None:
        """Why the policy in force is not the newest one."""
        return self.policy.problem or (self.follower.problem if self.follower is not None else None)

    def _open_two_phase(self, settings: Settings, catalog: ToolCatalog, console: str | None) -> TwoPhase:
        keys = open_keys(settings, os.environ)
        # A key that cannot be used stops the start, not the first proposal.
        keys.ring(time.time())
        return TwoPhase(
            store=self.store,
            ring=lambda: keys.ring(time.time()),
            catalog=catalog,
            sampler=self.sampler,
            hold=HoldTimes(settings.hold_timeout, settings.hold_timeout_progress, settings.hold_keepalive),
            console_url=console,
        )

    def _open_gate(
        self, settings: Settings, catalog: ToolCatalog, halts: ActiveHalts, shared_calls: SharedCalls | None
    ) -> Gate:
        # Over stdio nothing is put in: a wrapped server only ever gets placeholders, since what it does with a value
        # cannot be seen. What it sends out passes the proxy, which puts the value in there.
        return Gate(
            vault=self.vault if self._server is None else None,
            before_credentials=keep_out_of_dumps,
            two_phase=self.two_phase,
            catalog=catalog,
            policy=self.policy.current,
            redactor=self.masker,
            sink=self.sink,
            body_limit=settings.body_limit,
            shared_calls=shared_calls,
            seal_key=read_or_make_key(settings.state_dir / "keys" / "seal.key", KEY_BYTES),
            mcp_endpoints=settings.mcp_endpoints,
            limits=self.limits,
            halts=halts,
            flows=OpenFlows(self.policy.current, self.marks, flow_key(settings, os.environ)),
            services=self.services,
        )

    async def check(self) -> None:
        """Raise SchemaError if the store answers and its tables do not fit this version."""
        await check_at_start(self._database)

    async def watch(self) -> None:
        """Follow changes of the policy, the pins and the proposals. Runs until cancelled."""
        pins = watch_approvals(self.pins, self._approved)
        notices = [self.notifier.run()] if self.notifier is not None else []
        sweeping = Proposals(self._upkeep) if self._rests else None
        sweeps = (
            self.two_phase.sweep_forever(sweeping, lambda: not self._lead_note.is_followed()),
            self._sweep_marks(),
        )
        halts = [self.halt_watcher.watch(), *([self._listener.run()] if self._listener is not None else [])]
        limits = self.limits.maintain_forever()
        fleet = [self.fleet.watch()] if self.fleet is not None else []
        follow = [self.follower.run(self._listener, lead=self.lead)] if self.follower is not None else []
        others = (limits, self._try_store(), self._lead_note.tell_forever(self._well), *follow)
        await asyncio.gather(self.policy.watch(), pins, *sweeps, *halts, *others, *notices, *fleet)

    def _open_listener(self) -> PostgresListener | None:
        """Return what hears Postgres tell of changes. One process of a state folder does: the others see its files."""
        tells = {HALTS_CHANNEL: self.halt_watcher.tell}
        tells |= {FLEET_CHANNEL: self.fleet.tell} if self.fleet is not None else {}
        if self.follower is not None:
            tells[POLICY_CHANNEL] = self.follower.tell
        # Those that follow pushed policies take turns among themselves: another process could not hear for them.
        turn = "listener.lock" if self.follower is None else "listener-policy.lock"
        path = self._settings.state_dir / turn
        return open_listener(self._settings.postgres, tells, turn=path, wanted=self._lead_note.has_to_listen)

    def _well(self) -> int | None:
        """Return up to which revision of the fleet this process follows the store; None where it does not."""
        if not self._rests or not self.halt_watcher.is_well:
            return None
        if self.fleet is None:
            return 0
        return self.fleet.revision if self.fleet.is_well else None

    async def _try_store(self) -> None:
        """Try the store every few seconds while a rule needs it, so that /readyz fails before a call does."""
        asked = Proposals(self._upkeep) if self._rests else self.store
        while True:
            if not self.policy.current().has_two_phase or self._lead_note.is_followed():
                self.store_problem = None
            else:
                try:
                    async with asyncio.timeout(STORE_TRY_SECONDS):
                        await asked.baseline("", "")  # what every proposal asks first
                        if self.lead and self._counters is not None:
                            self._counters.set(WAITING, await asked.waiting(time.time()))
                except (StoreUnavailableError, TimeoutError) as error:
                    self.store_problem = str(error) or "no answer in time"
                else:
                    self.store_problem = None
            await asyncio.sleep(STORE_TRY_SECONDS)

    async def _sweep_marks(self) -> None:
        """Delete expired marks every minute, where the policy makes any, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                if self.policy.current().flows is not None:
                    await self.marks.sweep(time.time())
            except StoreUnavailableError as error:
                log.warning("expired marks are not swept", error=str(error))

    async def close(self) -> None:
        # The gate first: it records the outcome of calls it gives up, and the pipeline last, since all others record.
        self.gate.close()
        await self.limits.close()
        await self.two_phase.close()
        await self._upkeep.close()
        await self.marks.close()
        if self.services is not None:
            await self.services.close()
        if self.sampler is not None:
            await self.sampler.close()
        await asyncio.to_thread(self.audit.close)

    def _tell_of_services(self) -> None:
        """Log which services rules ask that the settings do not name: calls that need them are refused."""
        known = self.services.names if self.services is not None else frozenset()
        for rule in self.policy.current().rules.values():
            if self.lead and isinstance(rule, ExternalRule) and rule.service not in known:
                log.warning("a rule asks a service that the settings do not name", rule=rule.id, service=rule.service)

    def _policy_reloaded(self) -> None:
        self._on_reload()
        self._tell_of_services()
        if self.policy.problem is None:
            self._tools_changed(None)

    def _halts_changed(self, kind: str, halt: Halt) -> None:
        # Whoever halts through the API is recorded there. Of a signal or a file, only what comes of it can be.
        made_here = kind == "halted" and halt.origin in ("signal", "file")
        if self.lead and (made_here or (kind == "resumed" and halt.origin == "file")):
            detail = {"halt_id": halt.halt_id, "why": halt.reason, "origin": halt.origin, "scope": halt.scope}
            self.sink.record_later(AuditEvent(event_id=new_id(), kind=kind, time=time.time(), detail=detail))

    def _approved(self, server: str) -> None:
        if self._server in (None, server):
            if self.lead:
                event = AuditEvent(event_id=new_id(), kind="pins_approved", time=time.time(), server=server)
                self.sink.record_later(event)
            self._tools_changed(server)


def open_limits(settings: Settings, database: Database, upkeep: Database | None = None) -> LimitStore:
    """Return what counts against limits: for all replicas on Postgres, else for the workers of this machine."""
    if not settings.postgres:
        return SqliteLimits(settings.state_dir / LIMITS_FILE)
    from proxy.store.limit_store_postgres import PostgresLimits  # noqa: PLC0415  for those who have Postgres

    return PostgresLimits(database, upkeep)


def open_worker_calls(
    settings: Settings, folder: Path | None, *, lead: bool = True
) -> LocalCalls | ReplicaCalls | None:
    """Return what a worker shares with the others: those of this machine, and of all replicas where there are some."""
    if folder is None:
        return None
    near = LocalCalls(folder)
    if not settings.postgres:
        return near
    from proxy.store.replica_calls import ReplicaCalls  # noqa: PLC0415  for those who have Postgres

    key = read_or_make_key(settings.state_dir / "keys" / "seal.key", KEY_BYTES)
    return ReplicaCalls(
        near,
        lambda: open_database(settings.postgres, settings.state_dir, timeout=ASK_SECONDS, connections=2),
        replica_name(settings.state_dir),
        key,
        noted=folder / "others",
        lead=lead,
    )


def resting_database(calls: LocalCalls | ReplicaCalls | None) -> Database | None:
    """Return the database for what a worker asks all the time: the connection that what replicas share has anyway."""
    return None if calls is None or isinstance(calls, LocalCalls) else calls.resting


def flow_key(settings: Settings, environ: Mapping[str, str]) -> bytes:
    """Return the key of fingerprints. Replicas that share a store share it by the secret that signs their tokens."""
    if secret := environ.get(COMMIT_SECRET):
        return hashlib.blake2b(secret.encode(), digest_size=FLOW_KEY_BYTES, person=b"flow key").digest()
    return read_or_make_key(settings.state_dir / "keys" / "flows.key", FLOW_KEY_BYTES)


def open_marks(settings: Settings, database: Database) -> FlowMarks:
    """Return the store of marks. Those on a file are read on the event loop itself: a reader waits for nobody."""
    if settings.postgres:
        return FlowMarks(database)
    reader = open_database(None, settings.state_dir, timeout=READ_SECONDS, in_thread=False)
    return FlowMarks(database, reader, WindowFile(settings.state_dir / WINDOWS_FILE))


def _open_sampler(settings: Settings) -> Sampler | None:
    if settings.sampler_url is None:
        return None
    from proxy.twophase.sampler import open_sampler  # noqa: PLC0415  its HTTP client is large and rarely used

    return open_sampler(settings, os.environ)


def _open_notifier(settings: Settings, database: Database, two_phase: TwoPhase) -> Notifier | None:
    """Return what tells people of proposals. Raises ConfigError for targets that cannot be used."""
    if settings.notify is None:
        return None
    from proxy.notify.notifier import Notifier  # noqa: PLC0415  imports mail and HTTP clients, rarely used
    from proxy.notify.targets import load_targets  # noqa: PLC0415
    from proxy.store.notice_store import Notices  # noqa: PLC0415

    return Notifier(Notices(database), load_targets(settings.notify), os.environ, two_phase.page)
