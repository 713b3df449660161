"""Attributes each observation to the MCP call that it belongs to. Pure: it is given stdio traffic and trace events.

The trace shows how many bytes the server had written to its stdout, so it shows which calls it had answered at any
moment. What lies between a request and its response belongs to that call. Where several calls were open, the arguments,
the process and the thread decide as far as they can, and the other calls remain candidates.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from proxy.trace.argument_hints import NONE, ArgumentHints, NumberPlaces, hints_in
from proxy.trace.arguments import descriptor, split_arguments
from proxy.trace.capability import Capability, Observation
from proxy.trace.normalise import COPIERS, FORK, OPENERS, WRITERS
from proxy.trace.strace import Event, Syscall

if TYPE_CHECKING:
    from collections.abc import Iterator


type TracePhase = Literal["startup", "call", "ambient"]

MAX_OPEN = 256  # calls that wait for their answers
MAX_UNREAD = 10_000  # with those that are answered, and whose part of the trace is still to be read
MAX_HELD = 20_000
MAX_THREADS = MAX_WRITES = 4096
# After so many overlapping calls answered in the order of their requests, a server is taken to work in order.
ENOUGH_IN_ORDER = 3
# Requests with which a client begins. Servers still load code meanwhile: that is start-up, not a call's doing.
OPENING = frozenset({"initialize", "server/discover", "ping"})
# Stays open for as long as its client listens: as an open call it would be a candidate for everything.
LISTENING = "subscriptions/listen"
# System calls that write to a pipe.
COUNTED = WRITERS | COPIERS.keys()
# Confidence of each criterion where more than one call was open.
BY_ARGUMENT, BY_AUTHOR, BY_NUMBER, BY_THREAD, BY_TARGET, BY_ORDER = 0.9, 0.9, 0.8, 0.7, 0.7, 0.6
# Of a process that acts after its call was answered, while others are open: it may work for one of them by now.
BY_LATE_PROCESS = 0.6


@dataclass(frozen=True, slots=True)
class Attribution:
    """Which call something belongs to: `calls`, the likeliest first, and the confidence in that one."""

    phase: TracePhase
    calls: tuple[str, ...] = ()
    confidence: float = 1.0
    # Or argument, number (of an argument, in a name), target (of an earlier act of the call), process, thread, author
    # (of the response), order; window where none applied.
    how: str = "alone"
    late: bool = False  # a process of the call did it after the response

    @property
    def guessed(self) -> bool:
        """Whether nothing speaks for the first call more than for the others."""
        return self.how in ("order", "window")


class AttributedObservation(NamedTuple):
    observation: Observation
    attribution: Attribution


@dataclass(slots=True)
class _Call:
    call_id: str
    opening: bool
    number: int
    requested: float
    hints: ArgumentHints
    alone: Attribution
    answer_start: int | None = None
    answered: float | None = None


class Attributor:
    """Follows one server, whose stdout is the pipe with the inode `stdout`."""

    def __init__(self, stdout: int) -> None:
        # The inode, not a descriptor number: servers duplicate their stdout to other descriptors.
        self._stdout = stdout
        self._pipe = f"<pipe:[{stdout}]>"
        self._open: dict[str, _Call] = {}
        self._owners: OrderedDict[int, tuple[str, float]] = OrderedDict()
        self._threads: OrderedDict[int, str | None] = OrderedDict()
        # The files and sockets that calls used; None where several did.
        self._targets: OrderedDict[str, str | None] = OrderedDict()
        self._places = NumberPlaces()
        self._held: deque[tuple[Observation, int, str]] = deque()
        self._requests = self._written = self._seen = self._answered = 0
        self._unread_until = 0.0
        self._reads = self._begun = False
        self._in_order, self._overlapped = True, 0
        self._closed: list[str] = []
        # Only candidates are known so far; the threads that write their responses may still decide.
        self._undecided: deque[AttributedObservation] = deque()
        self._hints: OrderedDict[str, ArgumentHints] = OrderedDict()
        self._waited_for: Counter[str] = Counter()
        self._written_by: deque[tuple[int, int]] = deque(maxlen=MAX_WRITES)
        self._authors: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def request_sent(self, call_id: str, method: str | None, arguments: Any, time: float) -> None:
        """Note that a request is about to be written to the server."""
        if method == LISTENING:
            return
        hints = hints_in(arguments)
        _remember(self._hints, call_id, hints)
        alone = Attribution("call", (call_id,))
        self._requests += 1
        self._open[call_id] = _Call(call_id, method in OPENING, self._requests, time, hints, alone)
        # A client that never gets responses must not grow our memory, and neither must a trace that comes late.
        if len(self._open) - self._answered > MAX_OPEN:
            self._close(next(call.call_id for call in self._open.values() if call.answered is None))
        elif len(self._open) > MAX_UNREAD:
            self._close(next(iter(self._open)))

    def call_ended(self, call_id: str, start: int | None, time: float) -> None:
        """Note that a call ended: by a response at byte `start` of the server's output, or without one."""
        call = self._open.get(call_id)
        if call is not None:
            self._answered += call.answered is None
            call.answer_start, call.answered = start, time

    def output_read(self, total: int) -> list[AttributedObservation]:
        """Note how much of the server's output is known; return what can be attributed now."""
        self._seen = max(self._seen, total)
        return self._release()

    def not_read_until(self, time: float) -> None:
        """Note that the server had read nothing of its input at this time: what it did before is nobody's call."""
        if not self._reads:
            self._unread_until = max(self._unread_until, time)

    def reading_began(self) -> None:
        """Note that the server has begun to read its input, or to answer."""
        # At some time after it was last known not to have. All since then is the calls': none may hide in start-up.
        self._reads = True

    @property
    def awaits_first_read(self) -> bool:
        return not self._reads

    def follows(self, call_id: str) -> bool:
        """Return whether more may be attributed to a call."""
        return call_id in self._open or bool(self._waited_for[call_id])

    def take(self, event: Event, observations: list[Observation]) -> list[AttributedObservation]:
        """Take the next event of the trace and its observations; return what can be attributed now."""
        # With the counts of this moment: they show later which responses were written before.
        if observations:
            # What one system call does to several files, as a rename does, one call of MCP's does.
            touched = "\n".join(map(_touched, observations))
            self._held.extend((seen, self._written, touched) for seen in observations)
        if type(event) is Syscall and event.name in COUNTED:
            self._count(event)
        return self._release() if self._held else []

    @property
    def written(self) -> int:
        """How many bytes the trace shows the server to have written to its stdout."""
        return self._written

    def release_before(self, end: int) -> list[AttributedObservation]:
        """Return what was done before byte `end` of the server's output was written, which is about to be handled."""
        return self._release(end)

    def undecided(self) -> Iterator[AttributedObservation]:
        """Yield what only candidates are known of so far, as well as it can be told now."""
        for seen, guess in self._undecided:
            if seen.action != FORK:
                yield AttributedObservation(seen, self._resolve(seen, guess))

    def reads_output(self, call: Syscall) -> bool:
        """Return whether a call opens the server's stdout for reading: then bytes may be lost that were counted."""
        opens = call.name in OPENERS and self._pipe in call.rest
        return opens and "O_WRONLY" not in call.arguments and "O_PATH" not in call.arguments

    def flush(self, before: float = float("inf")) -> list[AttributedObservation]:
        """Return what has been held back since `before`, attributed as well as it can be."""
        old = [written for seen, written, _ in self._held if seen.time < before]
        if old:
            self._seen = max(self._seen, *old)
            if before == float("inf"):
                self.reading_began()
        return [*self._release(), *self._settle(before)]

    def take_closed(self) -> list[str]:
        """Return the calls that have ended in the trace, once nothing of theirs is held back."""
        closed = [call_id for call_id in self._closed if not self._waited_for[call_id]]
        for call_id in closed:
            self._closed.remove(call_id)
            del self._waited_for[call_id]
        return closed

    def _count(self, call: Syscall) -> None:
        # A search of the text first: most calls do not concern the pipe, and splitting arguments is slow.
        if call.value is None or call.value <= 0 or self._pipe not in call.arguments:
            return
        parts, at = split_arguments(call.arguments), COPIERS.get(call.name, 0)
        target = descriptor(parts[at]) if len(parts) > at else None
        if target is not None and target.inode == ("pipe", self._stdout):
            self._written += call.value  # what was really written: a partial write returns less than it was given
            self._written_by.append((self._written, call.pid))

    def _release(self, end: int = 0) -> list[AttributedObservation]:
        # strace's lines can arrive before the response that the server wrote earlier has been read and matched to
        # its call. Until our count of its output has caught up, the window of a call is not known.
        ready: list[AttributedObservation] = []
        while self._held:
            seen, written, touched = self._held[0]
            known = (written <= self._seen or written < end) and (self._reads or seen.time < self._unread_until)
            if not known and len(self._held) <= MAX_HELD:
                break
            self._held.popleft()
            each = AttributedObservation(seen, self._attribute(seen, written, touched))
            if each.attribution.guessed:
                self._undecided.append(each)
                self._waited_for.update(each.attribution.calls)
            elif seen.action != FORK:
                ready.append(each)
        if not self._held:
            self._close_answered(self._written, None)
        return [*ready, *self._settle()] if self._undecided else ready

    def _settle(self, before: float = 0.0) -> list[AttributedObservation]:
        """Decide what was undecided and cannot wait: candidates are answered, it is old, or there is too much."""
        ready: list[AttributedObservation] = []
        while self._undecided:
            seen, guess = self._undecided[0]
            ripe = seen.time < before or len(self._undecided) > MAX_HELD
            if not ripe and any(call_id in self._open for call_id in guess.calls):
                break
            self._undecided.popleft()
            self._waited_for.subtract(guess.calls)
            found = self._resolve(seen, guess)
            if seen.action == FORK and not found.guessed:
                self._own(seen.pid, found)
            elif seen.action != FORK:
                ready.append(AttributedObservation(seen, found))
        return ready

    def _resolve(self, seen: Observation, guess: Attribution) -> Attribution:
        """Return what can be told of an act by what was learned since."""
        for thread in seen.lineage if self._owners else ():
            call_id, confidence = self._owners.get(thread, ("", 0.0))
            if call_id in guess.calls:
                return _first(call_id, guess.calls, confidence, "process")
        if (found := self._by_author(seen, guess)) is not guess:
            return found
        fitting = self._places.fitting(_touched(seen), [self._hints.get(call_id, NONE) for call_id in guess.calls])
        if len(fitting) == 1:
            return _first(guess.calls[fitting[0]], guess.calls, BY_NUMBER, "number")
        owner = self._targets.get(seen.target)
        return _first(owner, guess.calls, BY_TARGET, "target") if owner in guess.calls else guess

    def _by_author(self, seen: Observation, guess: Attribution) -> Attribution:
        """Take the call that the same thread answered next, where threads write their own responses."""
        authors = [(call_id, *self._authors[call_id]) for call_id in guess.calls if call_id in self._authors]
        mine = [(end, call_id) for call_id, author, end in authors if author in seen.lineage]
        if not mine or len({author for _, author, _ in authors}) < 2:  # one thread writes for all: that says nothing
            return guess
        return _first(min(mine)[1], guess.calls, BY_AUTHOR, "author")

    def _close_answered(self, written: int, now: float | None) -> None:
        for call in self._begun_by(now) if self._answered else ():
            by_bytes = call.answer_start is not None and call.answer_start < min(written, self._seen)
            by_time = call.answered is not None and now is not None and now > call.answered
            if by_bytes or by_time or (call.answered is not None and call.answer_start is None):
                self._close(call.call_id)

    def _begun_by(self, now: float | None) -> list[_Call]:
        """Return the open calls, at least all that had begun by then; of many, as after a burst, no more than those."""
        calls = self._open.values()
        if now is None or len(calls) <= MAX_OPEN:
            return list(calls)  # all: a clock that is set back makes no call look as if it were still to come
        return list(takewhile(lambda call: call.requested <= now, calls))

    def _close(self, call_id: str) -> None:
        call = self._open.pop(call_id)
        self._answered -= call.answered is not None
        other = next((each for each in self._open.values() if not each.opening), None)  # they are in order
        if other is not None:
            self._overlapped += 1
            self._in_order = self._in_order and other.number > call.number
        self._begun = True
        self._closed.append(call_id)
        start = call.answer_start
        author = next(((pid, end) for end, pid in self._written_by if start is not None and end > start), None)
        if author is not None:
            _remember(self._authors, call_id, author)

    def _attribute(self, seen: Observation, written: int, touched: str) -> Attribution:
        self._close_answered(written, seen.time)
        calls = [call for call in self._begun_by(seen.time) if not call.opening and seen.time >= call.requested]
        # A process that a call started stays that call's, however late it acts: else a server would let
        # a child wait for the response, and act outside of any call.
        for thread in seen.lineage if self._owners else ():
            if thread in self._owners:
                return self._by_process(*self._owners[thread], calls, touched)
        if seen.time < self._unread_until and not self._begun:
            return Attribution("startup")
        if not calls:
            return Attribution("ambient" if self._begun else "startup")
        found = self._choose(seen, calls, touched)
        self._learn(seen, found)
        return found

    def _by_process(self, owner: str, confidence: float, calls: list[_Call], touched: str) -> Attribution:
        """Return whose the act of a process is that a call started."""
        if owner in self._open or not calls:
            return Attribution("call", (owner,), confidence, "process", late=owner not in self._open)
        # Its call is over and others are open. It may be one of several that work for whichever call comes.
        others = tuple(call.call_id for call in calls)
        named = _named(calls, touched)
        if len(named) == 1:
            return _first(named[0].call_id, (*others, owner), BY_ARGUMENT, "argument")
        return Attribution("call", (owner, *others), min(confidence, BY_LATE_PROCESS), "process", late=True)

    def _choose(self, seen: Observation, calls: list[_Call], touched: str) -> Attribution:
        if len(calls) == 1:
            return calls[0].alone
        # From the surest criterion to the least: an argument in what was touched, the thread, the order.
        named = _named(calls, touched)
        if len(named) == 1:
            return _ranked(named[0], calls, BY_ARGUMENT, "argument")
        among = named or calls
        self._places.learn(touched, (call.hints for call in calls))
        fitting = self._places.fitting(touched, [call.hints for call in among])
        if len(fitting) == 1:
            return _ranked(among[fitting[0]], calls, BY_NUMBER, "number")
        for thread in seen.lineage:
            call_id = self._threads.get(thread)
            mine = next((call for call in among if call.call_id == call_id), None)
            if mine is not None:
                return _ranked(mine, calls, BY_THREAD, "thread")
        if self._in_order and self._overlapped >= ENOUGH_IN_ORDER:
            return _ranked(among[0], calls, max(BY_ORDER, 1 / len(among)), "order")
        return _ranked(among[0], among, 1 / len(among), "window")

    def _learn(self, seen: Observation, found: Attribution) -> None:
        # Guesses teach nothing: one wrong guess would draw everything else of its thread along.
        if found.how not in ("alone", "argument", "number"):
            return
        call_id = found.calls[0]
        self._note_target(seen.target, call_id, named=found.how != "alone")
        starts = seen.capability in (Capability.PROC_EXEC, Capability.EXEC_FILELESS) and len(seen.lineage) > 1
        if starts:
            self._own(seen.pid, found)
        self._affine(seen.lineage[1] if starts else seen.pid, call_id, certain=found.how != "number")

    def _own(self, pid: int, found: Attribution) -> None:
        """Note whose a process is: that of the call that forked it, whatever it executes later."""
        if pid not in self._owners:
            _remember(self._owners, pid, (found.calls[0], found.confidence))

    def _note_target(self, target: str, call_id: str, *, named: bool) -> None:
        """Note which call uses a file or a peer that its arguments name; one that two calls use says nothing."""
        if named and target and self._targets.get(target, call_id) == call_id:
            _remember(self._targets, target, call_id)
        elif self._targets.get(target, call_id) != call_id:
            self._targets[target] = None

    def _affine(self, thread: int, call_id: str, *, certain: bool) -> None:
        """Note which call a thread works for; one that turns to another before the first is done works for many."""
        before = self._threads.get(thread, "")
        if before == call_id or (before == "" and not certain):
            return
        before = before if before != "" else call_id
        shared = before is None or (before != call_id and before in self._open)
        _remember(self._threads, thread, None if shared else call_id)


def _remember[K, T](known: OrderedDict[K, T], key: K, value: T) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > MAX_THREADS:
        known.popitem(last=False)


def _ranked(first: _Call, calls: list[_Call], confidence: float, how: str) -> Attribution:
    return _first(first.call_id, tuple(call.call_id for call in calls), confidence, how)


def _first(call_id: str, calls: tuple[str, ...], confidence: float, how: str) -> Attribution:
    """Return an attribution to one of `calls`; the others stay candidates."""
    return Attribution("call", (call_id, *(other for other in calls if other != call_id)), confidence, how)


def _named(calls: list[_Call], touched: str) -> list[_Call]:
    """Return the calls whose arguments name what was touched most exactly; none where no argument does."""
    lengths = [call.hints.longest_in(touched) for call in calls]
    longest = max(lengths)
    return [call for call, length in zip(calls, lengths, strict=True) if length == longest > 0]


def _touched(seen: Observation) -> str:
    return "\n".join((seen.path or "", seen.peer or "", seen.name or "", *seen.argv, seen.data.decode("latin-1")))
