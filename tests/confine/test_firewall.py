"""The rules are what nft takes, and say what they are for."""

from __future__ import annotations

import subprocess

import pytest

from proxy.confine.firewall import ruleset
from tests.support.system_needs import needs, needs_namespaces


@needs("nft", "unshare")
@needs_namespaces
def test_nft_takes_them_once_and_again() -> None:
    both = [ruleset(host_ports=[8000, 3000]), ruleset(proxy_uid=0, port=15006, resolver_port=15054)]
    script = "nft -f - <<'end'\n{0}end\nnft -f - <<'end'\n{0}end\nnft list ruleset\n"
    done = subprocess.run(
        ["unshare", "-Urn", "sh", "-ec", "".join(script.format(rules) for rules in both)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split("table inet interlock {")[1:]
    assert "redirect to :15001" in first
    assert "tcp dport { 3000, 8000 } redirect to :15001" in first
    assert "skuid" not in first
    assert "redirect to :15006" in second
    assert "redirect to :15001" not in second


@pytest.mark.parametrize("uid", [None, 10001])
def test_whatever_no_rule_lets_pass_is_dropped(uid: int | None) -> None:
    rules = ruleset(proxy_uid=uid)
    assert "hook output priority 0; policy drop;" in rules
    assert rules.count("meta skuid 10001 accept") == (0 if uid is None else 2)
    assert ("ct state established" in rules) is (uid is None)
