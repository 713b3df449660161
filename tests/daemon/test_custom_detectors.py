"""A policy's own detectors and suppressions hold in the running proxy, and change with a reload."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.daemon.reload import replace_policy, wait_for
from tests.daemon.test_redaction import call, result
from tests.daemon.test_responses import request, response, scripted
from tests.support.harness import Interlock, start_interlock
from tests.support.raw_socket import send_raw

BADGE, DESK, TOKEN = "BADGE-314159", "DESK-27", "ghp_" + "Zx8Kq2" * 6
HEAD = """\
version: 1
default: allow
rules:
  - {id: scrub, action: redact, tools: [note], detectors: [secrets, custom]}
detectors:
  - {id: custom.badge, description: Number of a badge, regex: 'BADGE-\\d{6}', edges: word}
"""
MORE = "  - {id: custom.desk, description: Number of a desk, regex: 'DESK-\\d{2}', edges: word}\n"


@pytest.fixture
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    with start_interlock(tmp_path_factory.mktemp("proxy"), policy=HEAD) as running:
        yield running


def in_flight(interlock: Interlock, text: str, tool: str = "note") -> tuple[str, str]:
    """Send `text` to a server that sends it back; return what the server and what the agent got."""
    echo = response(result({"content": [{"type": "text", "text": text}]}), "application/json")
    with scripted(echo) as (port, requests):
        received = send_raw("127.0.0.1", interlock.port, [request(port, call(tool, text=text))])
    return requests[0].decode(), received.decode()


def put_in_force(interlock: Interlock, policy: str) -> None:
    before = wait_for(interlock, lambda run: True)["policy_version"]
    replace_policy(interlock, policy)
    wait_for(interlock, lambda run: run["policy_version"] != before or run.get("policy_problem"))


def recorded(interlock: Interlock) -> str:
    return json.dumps(interlock.events())


def test_a_custom_detector_masks_on_the_wire_and_in_the_record(interlock: Interlock):
    sent, received = in_flight(interlock, f"I am {BADGE}")
    assert "I am [custom:badge:" in sent
    assert "I am [custom:badge:" in received
    assert BADGE not in recorded(interlock)
    assert BADGE not in interlock.errors()


def test_what_no_rule_masks_is_masked_in_the_record_all_the_same(interlock: Interlock):
    sent, _ = in_flight(interlock, f"I am {BADGE}", tool="unruled")
    assert BADGE in sent
    assert BADGE not in recorded(interlock)


def test_a_reload_brings_a_detector(interlock: Interlock):
    assert DESK in in_flight(interlock, f"at {DESK}")[0]
    put_in_force(interlock, HEAD + MORE)
    assert "at [custom:desk:" in in_flight(interlock, f"at {DESK}")[0]


def test_a_reload_with_a_bad_detector_leaves_the_old_ones(interlock: Interlock):
    put_in_force(interlock, HEAD + MORE.replace("DESK-", "(?=DESK-)"))
    run = wait_for(interlock, lambda run: run.get("policy_problem") is not None)
    assert "policy.yaml:7:" in run["policy_problem"]
    assert "RE2" in run["policy_problem"]
    assert BADGE not in in_flight(interlock, f"I am {BADGE}")[0]


def test_a_suppression_lets_one_fingerprint_pass_and_the_record_stays_masked(interlock: Interlock):
    other = BADGE.replace("3", "9")
    in_flight(interlock, f"I am {BADGE}")
    [finding] = [e for e in interlock.events() if e["kind"] == "decided"][-1]["redactions"]
    assert (finding["detector"], finding["path"]) == ("custom.badge", "arguments.text")
    entry = f"  - {{reason: the badge on the poster, tool: note, fingerprint: {finding['fingerprint']}}}\n"
    put_in_force(interlock, f"{HEAD}suppressions:\n{entry}")
    sent, received = in_flight(interlock, f"{BADGE} {other} {TOKEN}")
    for wire in (sent, received):
        assert f"{BADGE} [custom:badge:" in wire
        assert other not in wire
        assert TOKEN not in wire
    assert BADGE not in recorded(interlock)
    assert "[custom:badge:" in json.dumps([e["arguments"] for e in interlock.events() if e["kind"] == "decided"][-1])
