"""What /proc says of a process and all that it started: processor time, memory, and the machine's own name."""

from __future__ import annotations

import contextlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat, counted from behind the command's name, which may hold anything.
PARENT, FIRST_TIME, LAST_TIME = 1, 11, 15


def _fields(pid: int) -> list[str]:
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def tree(root: int) -> list[int]:
    """Return a process and its descendants; none where it is gone."""
    parents: dict[int, int] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parents[int(entry.name)] = int(_fields(int(entry.name))[PARENT])
    found = [root] if root in parents else []
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def tasks(pid: int) -> list[Path]:
    """Return the folders of a process's threads."""
    return list((PROC / str(pid) / "task").iterdir())


def cpu_seconds(root: int) -> dict[int, float]:
    """Return the processor time of each process of a tree, that of children it has waited for included."""
    used = {}
    for pid in tree(root):
        with contextlib.suppress(OSError, IndexError):
            used[pid] = sum(map(int, _fields(pid)[FIRST_TIME:LAST_TIME])) / TICKS
    return used


def spent(before: dict[int, float], after: dict[int, float]) -> dict[int, float]:
    """Return what each process used between two looks."""
    return {pid: used - before.get(pid, 0.0) for pid, used in after.items()}


def memory(pid: int, kind: str = "Pss") -> float:
    """Return the megabytes that a process holds by itself: shared pages count in parts (PSS), or whole (Rss)."""
    for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def tree_memory(root: int) -> dict[int, float]:
    """Return the megabytes of each process of a tree."""
    held = {}
    for pid in tree(root):
        with contextlib.suppress(OSError):
            held[pid] = memory(pid)
    return held


@dataclass(frozen=True)
class Machine:
    """Where the figures come from."""

    cpu: str
    cores: int
    memory_gb: float
    system: str
    python: str
    load_before: float
    """How many processes wanted to run before the first one of ours."""


def machine() -> Machine:
    """Look at the machine."""
    model = next(
        (line.partition(":")[2].strip() for line in _lines(PROC / "cpuinfo") if line.startswith("model name")),
        "unknown",
    )
    total = next((int(line.split()[1]) for line in _lines(PROC / "meminfo") if line.startswith("MemTotal")), 0)
    return Machine(
        cpu=model,
        cores=len(os.sched_getaffinity(0)),
        memory_gb=round(total * 1024 / 1e9, 1),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        load_before=round(os.getloadavg()[0], 2),
    )


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
