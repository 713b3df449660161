"""Checks that the policy on disk loads, and that the tests beside its rules pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.doctor.findings import CheckResult, fail, ok
from proxy.errors import PolicyError
from proxy.policy.load import compile_sources, load_sources
from proxy.policy.rule_tests import run_tests
from proxy.redact.detector_catalog import builtin
from proxy.system.terminal_text import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


def rules_and_tests(path: Path, profile: str | None = None, also: Sequence[Path] = ()) -> Iterator[CheckResult]:
    try:
        sources = load_sources(path, builtin(), also=also)
        compile_sources(sources)
    except PolicyError as error:
        yield fail("policy", str(error).splitlines()[0], f"`interlock policy check {path}` says what to write")
        return
    rules = [rule for source in sources for rule in source.content.call_rules]
    egress = [rule for source in sources if source.content.egress for rule in source.content.egress.rules]
    results = run_tests(rules, egress)
    failed = [result for result in results if not result.passed]
    if failed:
        said = f"{len(failed)} of {count(len(results), 'test')} in {path} failed, the first of rule {failed[0].rule}"
        yield fail("policy", said, f"run `interlock policy test {path}` to see them")
    else:
        counted = f"{count(len(rules) + len(egress), 'rule')}, {count(len(results), 'test')} passed"
        yield ok("policy", f"{path}: {counted}; profile {profile or 'none'}")
