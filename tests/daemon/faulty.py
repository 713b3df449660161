"""`interlock` with one part that always fails: `python -m tests.daemon.faulty PART up …`."""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

from proxy import cli

PARTS = {
    "names": "addons.http_flows.misdirected",
    "context": "addons.http_flows.context",
    "destination": "addons.egress.Egress._ask",
    "egress guard": "proxy.egress.EgressGuard._judge",
    "egress policy": "proxy.policy.egress.CompiledEgress.decide",
    "connection": "addons.egress.Egress._admit",
    "parse": "proxy.gate.read_body",
    "customs": "proxy.outbound.Customs.look",
    "headers": "proxy.gate.check_headers",
    "call": "proxy.gate.as_call",
    "decide": "proxy.policy.decide.CompiledPolicy.decide",
    "pins": "proxy.catalogue.Catalogue.objection",
    "pin store": "proxy.store.pins.PinFiles.read",
    "redact": "proxy.gate.Gate._redact",
    "record": "proxy.store.log.LocalLog.record",
    "begin": "proxy.gate.Gate._begin",
    "carry out": "addons.mcp_gate.McpGate._carry_out",
    "serialise": "addons.mcp_gate.serialise",
    "replace body": "addons.http_flows.replace_body",
}


def fail(*_: Any, **__: Any) -> Any:
    raise RuntimeError("injected failure")


def main() -> None:
    part = sys.argv.pop(1)
    with mock.patch(PARTS[part], fail):
        cli.main()


if __name__ == "__main__":
    main()
