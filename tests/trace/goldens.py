"""What the reader makes of a trace, in a form that can be kept beside it. Run as a module, it shows that of a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from proxy.trace.arguments import split_arguments
from proxy.trace.strace import Event, Syscall, TraceReader, Unparsed

FOLDER = Path(__file__).parent / "golden"


def lines_of(name: str) -> list[str]:
    return (FOLDER / f"{name}.strace").read_text("latin-1").split("\n")[:-1]


def events_of(name: str) -> list[Event]:
    reader = TraceReader()
    return [reader.take(line) for line in lines_of(name)]


def shown(event: Event) -> dict[str, Any]:
    kind = type(event).__name__
    if isinstance(event, Unparsed):
        return {"kind": kind, "line": event.line}
    fields = {"kind": kind, **event._asdict()}
    del fields["line"]
    if isinstance(event, Syscall):
        del fields["rest"]
        fields |= {"arguments": split_arguments(event.arguments), "error": event.error, "returned": event.returned}
        fields |= {"ok": event.ok, "injected": event.injected}
    return fields


def golden_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.strace"))


if __name__ == "__main__":
    for each in events_of(sys.argv[1]):
        sys.stdout.write(json.dumps(shown(each)) + "\n")
