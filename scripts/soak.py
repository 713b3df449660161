"""Put a proxy under long load, and say whether its memory stays flat: about three minutes for 50,000 calls.

First connections that say nothing and heads that never end, then calls to a fast local server. Exits 1 where memory
grows with calls, or a crowd keeps others out. `--calls` and `--workers` set the size.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.soak.scenes import KB, MAX_SLOPE, SLOW_HEAD, answered, crowd, memory, soak
from tests.support.harness import Interlock, start_interlock, start_python_server

CALLS = 50_000
CROWD = 1000
MIB = 1 << 20
POLICY = "version: 1\ndefault: allow\n"


def main() -> int:
    """Run it, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=CALLS, help="how many calls")
    parser.add_argument("--workers", type=int, default=2, help="how many workers")
    options = parser.parse_args()
    settings = {"header_timeout": 10, "workers": options.workers, "log_level": "error"}
    with tempfile.TemporaryDirectory(prefix="interlock-soak-") as folder, contextlib.ExitStack() as stack:
        server = stack.enter_context(start_python_server("quick", Path(folder) / "server"))
        interlock = stack.enter_context(start_interlock(Path(folder), policy=POLICY, settings=settings))
        print(f"{options.workers} workers and their supervisor: {memory(interlock) / MIB:.0f} MiB", flush=True)
        for name, sent in (("idle connections", b""), ("heads that never end", SLOW_HEAD)):
            _hold(interlock, server.port, name, sent)
        return _soak(interlock, server.port, options.calls)


def _hold(interlock: Interlock, server_port: int, name: str, sent: bytes) -> None:
    before, started = memory(interlock), time.monotonic()
    with crowd(interlock.port, CROWD, sent):
        answered(interlock.port, server_port)
        grown = memory(interlock) - before
        print(f"{CROWD} {name}: +{grown / MIB:.1f} MiB, a call beside them answered", flush=True)
    print(
        f"  after them: {(memory(interlock) - before) / MIB:+.1f} MiB, {time.monotonic() - started:.0f} s", flush=True
    )


def _soak(interlock: Interlock, server_port: int, calls: int) -> int:
    started = time.monotonic()

    def tell(done: int, size: int) -> None:
        rate = done / (time.monotonic() - started)
        print(f"{done:>7} calls  {size / MIB:7.2f} MiB of pages  {rate:5.0f}/s", flush=True)

    found = soak(interlock, server_port, calls, tell, every=max(1, calls // 25))
    verdict = "flat" if found.flat else "NOT FLAT"
    print(f"{found.calls} calls in {found.seconds:.0f} s; {found.slope:+.1f} KB per 1000 calls over the second half")
    print(f"{verdict}: at most {MAX_SLOPE:g} KB per 1000 calls ({KB} bytes each) count as flat")
    return 0 if found.flat else 1


if __name__ == "__main__":
    sys.exit(main())
