"""Metrics in Prometheus' text form."""

from __future__ import annotations

import re

from proxy.core.model import AuditEvent
from proxy.metrics.counters import GATE, Counters
from proxy.metrics.prometheus import expose, gauge

SAMPLE = re.compile(r'[a-z_]+(\{[a-z_]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z_]+="(?:[^"\\\n]|\\["\\n])*")*\})? [0-9.e+-]+')


def test_every_line_is_well_formed_and_follows_its_help_and_type() -> None:
    counters = Counters(1)
    row = counters.row(1)
    row.count(AuditEvent(event_id="e", kind="decided", time=0, decision="allow", reason="policy_allowed", gate_ms=1.0))
    row.time(GATE, 100.0)
    lines = list(expose(counters.sums()))
    told = ""
    for line in lines:
        if line.startswith("# "):
            told = line.split()[2]
        else:
            assert SAMPLE.fullmatch(line), line
            assert line.startswith(told), line
    assert 'interlock_calls_total{decision="allow",reason="policy_allowed"} 1' in lines
    buckets = [int(line.split()[-1]) for line in lines if line.startswith(f"{GATE}_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 2
    assert [f"{GATE}_count 2", f"{GATE}_sum 100.001"] == [
        line for line in lines if re.match(f"{GATE}_(sum|count)", line)
    ][::-1]
    assert "interlock_connections 0" in lines
    assert not [line for line in lines if 'reason="stopping"' in line], "what was never counted is left out"


def test_labels_are_escaped() -> None:
    lines = gauge("x_info", "What it is.", [({"a": 'q"\\\n'}, 1)])
    assert lines == ["# HELP x_info What it is.", "# TYPE x_info gauge", 'x_info{a="q\\"\\\\\\n"} 1']
