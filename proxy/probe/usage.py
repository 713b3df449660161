"""What a probed server uses of the machine: processor time, memory, the disk, threads and open files."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from proxy.probe.findings import ProbeFinding, from_rule
from proxy.sandbox.process_reaper import descendants

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from proxy.probe.rulebook import Rulebook

# No honest tool needs so much for one call with inputs as small as a probe's: memory, and bytes that it writes.
MAX_MEMORY = 1 << 30
MAX_WRITTEN = 1 << 30
MAX_STARTED = 500
# Of the time that a call may take, if it takes all of it; and at least so many seconds, which no install needs. By the
# busiest thread: the sum over those that only wait their turn on a busy machine is more than any share.
BUSY_SHARE, BUSY_SECONDS = 0.8, 4.0
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time of a server's processes in seconds, the most memory that one of them has had, and bytes written.

    `ready` is by thread how long it ran or could have run: on a busy machine others had the processors meanwhile.
    """

    cpu: float = 0.0
    memory: int = 0
    ready: Mapping[int, float] = field(default_factory=dict[int, float])
    written: int = 0

    def busiest(self, before: Usage) -> float:
        """Return for how long the busiest thread was ready since `before`."""
        return max((seconds - before.ready.get(thread, 0.0) for thread, seconds in self.ready.items()), default=0.0)


def usage(pid: int) -> Usage:
    """Return what the processes below `pid` have used; those that ended count for their parents."""
    cpu, memory, written, ready = 0.0, 0, 0, dict[int, float]()
    for each in descendants(pid):
        try:
            status = Path(f"/proc/{each}/status").read_text()
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        values = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        if values.get("Name", "").strip() == "strace":
            continue
        cpu += sum(int(number) for number in fields[11:15]) / _TICK
        memory = max(memory, int(values.get("VmHWM", "0 kB").split()[0]) << 10)
        ready |= _ready(each)
        written += _written(each)
    return Usage(cpu, memory, ready, written)


def _ready(pid: int) -> dict[int, float]:
    """Return by thread how many seconds it has run, or was ready to run and had no processor."""
    found: dict[int, float] = {}
    with contextlib.suppress(OSError):  # ended meanwhile
        for task in Path(f"/proc/{pid}/task").iterdir():
            ran, waited, _ = (task / "schedstat").read_text().split()
            found[int(task.name)] = (int(ran) + int(waited)) / 1e9
    return found


def _written(pid: int) -> int:
    """Return the bytes that a process has written, also those that were removed again; 0 where that is not told."""
    with contextlib.suppress(OSError):
        fields = dict(line.split(": ", 1) for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        return int(fields["wchar"])
    return 0


def judge_call(before: Usage, after: Usage, seconds: float, *, timed_out: bool) -> str | None:
    """Return what a call used up, in words; None where it did not."""
    if after.memory >= MAX_MEMORY > before.memory:
        return f"{after.memory >> 20} MB of memory"
    if after.written - before.written >= MAX_WRITTEN:
        return f"{(after.written - before.written) >> 20} MB written"
    busy = max(after.cpu - before.cpu, after.busiest(before))
    if timed_out and after.cpu > before.cpu and busy >= max(BUSY_SHARE * seconds, BUSY_SECONDS):
        return f"{after.cpu - before.cpu:.0f} s of processor time, and no answer"
    return None


def judge_usage(
    used: Mapping[str, str], started: Mapping[str, int], exhausted: Mapping[str, str], rulebook: Rulebook
) -> Iterator[ProbeFinding]:
    """Yield a finding for each tool that used up what others need too; all are by tool."""
    crowds = {tool: f"{count} threads or processes" for tool, count in started.items() if count >= MAX_STARTED}
    for tool, what in {**crowds, **exhausted, **used}.items():
        yield from_rule(rulebook.get("uses-up-machine"), tool, None, f"Seen: {what}")
