"""Every profile contains what its table in docs/profiles.md says, and stops no honest traffic."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from proxy.policy.lint import lint_egress
from proxy.policy.load import load_sources, merge_egress
from proxy.policy.rule_tests import run_tests
from proxy.redact import builtin
from proxy.system.package_data import PROFILES, profile_file
from tests.profiles.cases_file import Case, load_cases
from tests.profiles.world import ProfileRunner

ALL = load_cases()
# A third of the cases, one of every class; `make profiles` runs all of them, and says where its table is not met.
CASES = ALL if os.environ.get("PROFILES") == "full" else ALL[::3]
# What balanced leaves: each is honest often enough that only strict stops it (docs/profiles.md).
LEFT_TO_STRICT = {
    *(
        "body-entropy",
        "body-encoded-text",
        "body-encoded-twice",
        "body-jwt",
        "ws-entropy",
        "ws-encoded-text",
        "ws-json",
    ),
    *("url-entropy-path", "url-entropy-query", "url-base64-text", "url-hex-text", "url-many-chunks", "url-drop"),
    *("url-user-info", "url-webdav", "url-propfind", "url-put-docs", "header-jwt-unknown"),
    *("fin-btc", "fin-btc-segwit", "fin-eth", "fin-eth-mcp", "fin-eth-key", "fin-card-mcp", "fin-iban-body"),
    *("ssrf-localhost", "ssrf-localhost-name", "ssrf-loopback-v6", "ssrf-private", "ssrf-private-192"),
    *("ssrf-nested-loopback", "ssrf-nested-private", "ssrf-nested-json-loopback", "ssrf-nested-scheme"),
    *("ssrf-nested-file", "ssrf-mcp-private", "ssrf-mcp-loopback", "ssrf-redirect-loopback"),
    *("shell-recursive-delete", "shell-nc"),
    # A server that is brought up to date changes so: stopping that would stop honest ones.
    *("tools-drift-meaning", "tools-drift-required", "tools-drift-hint", "tools-drift-type", "tools-drift-default"),
    *("tools-drift-new-tool", "a2a-card-drift-url", "a2a-card-drift-skill"),
    # Only possible, or an agent's own words.
    *("tools-argument-injection", "a2a-message-turn", "a2a-message-role"),
    # Developers do this every day, with other hosts and files.
    *("chain-env-then-fetch", "chain-env-production-then-post", "chain-env-decoy-between", "chain-env-by-shell"),
    *("chain-env-well-known-beside", "chain-get-env-then-fetch", "chain-vault-then-fetch"),
    *("chain-write-exec", "chain-write-chmod-exec", "chain-write-tcp-exec"),
    *("chain-vault-hex-plain", "chain-vault-plain-body", "chain-vault-reversed"),
    *("chain-mail-to-web", "chain-mail-to-fetch", "chain-customers-to-paste", "chain-card-file-to-web"),
    # Recorded, not stopped.
    *("budget-loop", "budget-send-flood", "budget-mail-other-servers", "budget-small-transfers"),
    *("budget-wallet", "budget-wallet-mixed"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    async def run_all(profile: str, state_dir: Path) -> list[tuple[Case, bool]]:
        runner = ProfileRunner(profile, state_dir)
        return [(case, await runner.contained(case)) for case in CASES]

    return {profile: asyncio.run(run_all(profile, tmp_path_factory.mktemp(profile))) for profile in PROFILES}


def test_watch_stops_nothing(run):
    assert [case.id for case, contained in run["watch"] if contained] == []


@pytest.mark.parametrize("profile", PROFILES)
def test_no_profile_stops_what_is_honest(run, profile):
    assert [case.id for case, contained in run[profile] if contained and case.expect == "benign"] == []


def test_strict_contains_every_case(run):
    assert [case.id for case, contained in run["strict"] if not contained and case.expect == "contained"] == []


def test_balanced_contains_all_but_what_is_left_to_strict(run):
    missed = {case.id for case, contained in run["balanced"] if not contained and case.expect == "contained"}
    assert missed == LEFT_TO_STRICT & {case.id for case in CASES}
    attacks = sum(case.expect == "contained" for case in CASES)
    assert len(missed) <= attacks // 4


def test_every_class_has_cases_of_both_kinds():
    kinds = {(case.family, case.expect) for case in ALL}
    families = {family for family, _ in kinds}
    assert {(family, "benign") for family in families} <= kinds
    assert len(families) == 12


@pytest.mark.parametrize("profile", ["balanced", "strict"])
def test_the_tests_beside_the_rules_pass_and_lint_has_nothing_to_say(profile):
    sources = load_sources(profile_file(profile), builtin())
    rules = [rule for source in sources for rule in source.content.rules]
    egress = merge_egress(sources)
    assert [result for result in run_tests(rules, egress.rules) if not result.passed] == []
    assert lint_egress(egress) == ()
