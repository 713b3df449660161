"""Assigns what strace and the sinks saw to a call and a program. Pure.

A probe makes one call after another, so time decides; a process belongs to the call that started it, however late.
"""

from __future__ import annotations

import base64
import contextlib
import posixpath
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any

from proxy.probe.observation_facts import MISSING, TEMPORARY, ProbeObservation, RunContext, meant_program
from proxy.probe.rulebook import is_sensitive
from proxy.trace.capability import Capability, Observation
from proxy.trace.normalise import Normaliser
from proxy.trace.process_tree import STARTERS, Process
from proxy.trace.strace import Ended, Syscall, TraceReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.core.model import JsonObject

MAX_SAME = 3
# Of one capability during one call, so that many files read do not crowd out the one connection made.
MAX_KEPT = 2000
MAX_KEPT_AT_START = 20_000  # of servers with many libraries: that is once, and each call may have as many as above
MAX_MISSED = 20
_TEMPORARY = tuple(f"{folder}/" for folder in TEMPORARY)
FULL = {"EMFILE": "open files", "ENFILE": "open files"}


class Observer:
    """Follows one server, and adds to `context`. Writes to `ignored` files, which it was given open, do not count."""

    def __init__(
        self, context: RunContext, cwd: str, clock: Callable[[], float], ignored: frozenset[str] = frozenset()
    ) -> None:
        self._context = context
        self._clock = clock
        self.reader = TraceReader()
        self._normaliser = Normaliser(cwd.encode(), frozenset(path.encode() for path in ignored), searches=True)
        self._rest = b""
        self._starts: list[float] = [0.0]
        self._calls: list[int | None] = [None]
        self._born: dict[int, tuple[Process, int | None]] = {}
        self._programs: dict[int, str] = {}
        self._seen: Counter[tuple[Any, ...]] = Counter()
        self._kept: Counter[tuple[int | None, Capability]] = Counter()
        self._sent: dict[str, list[tuple[float, int | None]]] = {}
        self._noted: list[tuple[Observation, str]] = []
        self._sought: dict[int, ProbeObservation] = {}
        self.records: list[ProbeObservation] = []
        self.started: Counter[int | None] = Counter()  # threads and processes, by call
        self.exhausted: dict[int | None, str] = {}  # what the kernel had no more of, by call
        # Files in temporary folders that calls looked for and that are not there, by call.
        self.missed: dict[str, int] = {}
        self.dropped = 0
        self.last = 0.0
        self._first: int | None = None
        # Whether the started program was seen to end: strace ends then too, and that is no tampering.
        self.saw_end = False

    def begin(self, call: int | None) -> None:
        """Assign what happens from now on to a call, or to none."""
        self._starts.append(self._clock())
        self._calls.append(call)

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.last = self._clock()
        for line in lines:
            event = self.reader.take(line.decode("utf-8", "backslashreplace"))
            observations = self._normaliser.take(event)
            if isinstance(event, Ended):
                self.saw_end = self.saw_end or event.pid == self._first
            elif isinstance(event, Syscall):
                self._first = self._first or event.pid
                self._context.pids.add(event.pid)
                self._count(event)
                if event.name in STARTERS and event.ok and event.value:
                    self._context.pids.add(event.value)
                    self._owner(event.value, event.time)
            for observation in observations:
                self._take(observation)

    def _count(self, event: Syscall) -> None:
        """Count what a call uses up: threads, processes, and descriptors that there are no more of."""
        if event.name in STARTERS and event.ok:
            self.started[self._owner(event.pid, event.time)] += 1
        elif event.error in FULL or (event.name in STARTERS and event.error == "EAGAIN"):
            what = FULL.get(event.error or "", "threads or processes")
            self.exhausted.setdefault(self._owner(event.pid, event.time), f"all {what} ({event.name}: {event.error})")

    def _owner(self, pid: int, time: float) -> int | None:
        """Return the call that started a thread's process; for the server's own processes, the current call."""
        process = self._normaliser.lineage.process(pid)
        known = self._born.get(id(process))
        if known is None:
            parent = process.parent
            inherited = self._born.get(id(parent)) if parent is not None else None
            call = inherited[1] if inherited and inherited[1] is not None else self._during(time)
            known = self._born[id(process)] = (process, call)
        return known[1] if known[1] is not None else self._during(time)

    def _during(self, time: float) -> int | None:
        return self._calls[max(0, bisect_right(self._starts, time) - 1)]

    def _take(self, observation: Observation) -> None:
        call = self._owner(observation.pid, observation.time)
        if observation.capability is Capability.PROC_EXEC and observation.error in MISSING:
            # A step of a search: what counts is that the process never found it.
            self._sought[observation.pid] = ProbeObservation(observation, call)
            return
        if observation.capability is Capability.PROC_EXEC and observation.ok:
            self._sought.pop(observation.pid, None)
            self._programs[observation.pid] = meant_program(observation)[0]
            if call is None and len(observation.lineage) <= 1 and observation.path:
                self._context.programs.add(observation.path)
        self._miss(observation, call)
        program = next((self._programs[pid] for pid in observation.lineage if pid in self._programs), "")
        if observation.capability in (Capability.NET_CONNECT, Capability.NET_DNS, Capability.IPC_UNIX):
            self._sent.setdefault(_key(observation), []).append((observation.time, call))
        ancestors = tuple(self._programs[pid] for pid in observation.lineage if pid in self._programs)
        self._keep(ProbeObservation(observation, call, program, ancestors))

    def _miss(self, observation: Observation, call: int | None) -> None:
        path = observation.path or ""
        sought = observation.capability is Capability.FS_READ and observation.error in MISSING
        # They are made for a second run: a server that says `/tmp/../etc/x` must not choose another place for one.
        inside = path.startswith(_TEMPORARY) and posixpath.normpath(path) == path
        if call is not None and sought and inside and len(self.missed) < MAX_MISSED:
            self.missed.setdefault(path, call)

    def _keep(self, record: ProbeObservation) -> None:
        """Store the first few of the same, and a bounded number of a kind."""
        seen = record.observation
        if seen.action == "look" and not is_sensitive(self._context.tilde(seen.path or "")):
            return  # programs look at thousands of files
        key = (record.call, seen.capability, seen.action, seen.target, seen.error, record.program, bool(seen.data))
        # Data that was sent is always stored: a secret may be in any piece of it.
        self._seen[key] += 1
        if self._seen[key] > MAX_SAME and not seen.data:
            return
        self._kept[record.call, seen.capability] += 1
        if self._kept[record.call, seen.capability] > (MAX_KEPT_AT_START if record.call is None else MAX_KEPT):
            self.dropped += 1
        else:
            self.records.append(record)

    def note(self, note: JsonObject) -> None:
        """Add a sink's log entry; anything else is ignored."""
        time = note.get("time")
        observation = _noted(note, self._context) if isinstance(time, float) else None
        if observation is not None:
            self._noted.append((observation, _key(observation, note.get("address"), note.get("port"))))

    def finish(self) -> None:
        """Assign the sinks' entries to calls, by what strace saw: the sinks do not know which process connected."""
        for observation, key in self._noted:
            seen = self._sent.get(key, ())
            nearest = min(seen, key=lambda each: abs(each[0] - observation.time), default=None)
            self._keep(ProbeObservation(observation, nearest[1] if nearest else self._during(observation.time)))
        self._noted.clear()

    def code_read(self) -> tuple[str, ...]:
        """Return the files that were opened so far, in their order."""
        opened = (each.observation for each in self.records if each.observation.capability is Capability.FS_READ)
        return tuple(dict.fromkeys(each.path for each in opened if each.ok and each.path))

    @property
    def sought(self) -> tuple[ProbeObservation, ...]:
        """Return the programs that a process tried to start, and that are nowhere."""
        return tuple(self._sought.values())


def _key(observation: Observation, address: Any = None, port: Any = None) -> str:
    """Return what strace's view and a sink's view of the same connection have in common."""
    if observation.name is not None:
        return observation.name.lower()
    if observation.capability is Capability.IPC_UNIX and observation.path is not None:
        path = observation.path  # a sink knows the real path of its socket, and /var/run is a link
        return path.removeprefix("/var") if path.startswith("/var/run/") else path
    if isinstance(address, str):
        return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    return observation.peer or ""


def _noted(note: JsonObject, context: RunContext) -> Observation | None:
    time, data = float(note["time"]), b""
    with contextlib.suppress(ValueError):
        data = base64.b64decode(note["head"]) if isinstance(note.get("head"), str) else b""
    match note.get("kind"):
        case "dns":
            name = str(note.get("name"))
            if isinstance(note.get("address"), str):
                context.names[note["address"]] = name
            line = f"resolver: {note.get('type')} {name}"
            return Observation(Capability.NET_DNS, "query", 0, time, line, name=name, data=data)
        case "tcp":
            peer = f"{note.get('name') or note.get('address')}:{note.get('port')}"
            line = f"sink: {peer}{' inside TLS' if note.get('tls') else ''}: {data[:200]!r}"
            action = "send" if data else "connect"
            return Observation(Capability.NET_CONNECT, action, 0, time, line, peer=peer, data=data)
        case "unix":
            path = str(note.get("path"))
            line = f"sink: {path}: {data[:200]!r}"
            return Observation(Capability.IPC_UNIX, "send", 0, time, line, path=path, data=data)
        case _:
            return None
