"""`interlock` with a part that fails, the one that FILE names just then: `python -m tests.daemon.faulty FILE up …`."""

from __future__ import annotations

import contextlib
import inspect
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from proxy import cli

PARTS = {
    "names": "addons.flow_state.misdirected",
    "context": "addons.flow_state.context",
    "destination": "addons.egress.Egress._ask",
    "egress guard": "proxy.egress.guard.EgressGuard._judge",
    "egress policy": "proxy.policy.egress.CompiledEgress.decide",
    "connection": "addons.egress.Egress._admit",
    "parse": "proxy.gate.request.read_body",
    "quick reader": "proxy.wire.jsonrpc.read_quickly",
    "customs": "proxy.gate.outbound_scan.OutboundScanner.look",
    "headers": "proxy.gate.request.check_headers",
    "call": "proxy.gate.request.as_call",
    "decide": "proxy.policy.decide.CompiledPolicy.decide",
    "pins": "proxy.gate.tool_catalog.ToolCatalog.look_up",
    "pin store": "proxy.store.pin_files.PinFiles.read",
    "redact": "proxy.gate.argument_masking.ArgumentMasking.mask",
    "record": "proxy.audit.local_log.LocalLog.record",
    "begin": "proxy.gate.in_flight.InFlightCalls.begin",
    "carry out": "addons.mcp.carry_out",
    "forward": "addons.http_carrier.HttpCarrier.forward",
    "replace body": "addons.flow_state.forward_as_json",
}


def failing(file: Path, part: str) -> Callable[..., Any]:
    """Return what stands in for the part: itself, unless the file says that it fails."""
    real = pkgutil.resolve_name(PARTS[part])

    def stand_in(*arguments: Any, **options: Any) -> Any:
        if file.read_text() == part:
            raise RuntimeError("injected failure")
        return real(*arguments, **options)

    owner, _, name = PARTS[part].rpartition(".")
    kept = inspect.getattr_static(pkgutil.resolve_name(owner), name)
    return staticmethod(stand_in) if isinstance(kept, staticmethod) else stand_in


def main() -> None:
    file = Path(sys.argv.pop(1))
    with contextlib.ExitStack() as stack:
        for part, target in PARTS.items():
            stack.enter_context(mock.patch(target, failing(file, part)))
        cli.main()


if __name__ == "__main__":
    main()
