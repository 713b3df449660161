"""The rules as they are written."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from proxy.probe.observation_facts import ProbeObservation
from proxy.probe.rulebook import FACTS, Rulebook, matches, rulebook
from proxy.trace.capability import Capability, Observation
from tests.support.harness import REPOSITORY


@pytest.mark.parametrize(
    ("path", "glob", "fits"),
    [
        ("~/.ssh/id_rsa", "**/.ssh/id_*", True),
        ("/root/.ssh/id_rsa", "**/.ssh/id_*", True),
        ("/root/.ssh/keys/id_rsa", "**/.ssh/id_*", False),
        ("/etc/shadow", "/etc/shadow", True),
        ("/etc/shadow-", "/etc/shadow", False),
        ("/etc/cron.d/x", "/etc/cron*/**", True),
        ("~/.cache/a/b", "~/.cache/**", True),
        ("/x/.cache/a", "~/.cache/**", False),
        ("~/x.env", "**/.env", False),
        ("/a/.git/hooks/pre-commit", "**/.git/hooks/*", True),
    ],
)
def test_globs_match_whole_paths(path: str, glob: str, fits: bool) -> None:
    assert matches(path, (glob,)) is fits


def test_every_rule_that_the_issue_of_probing_names_is_there() -> None:
    assert {rule.id for rule in rulebook().rules} >= {
        "undeclared-egress",
        "dns-data",
        "sensitive-path-read",
        "canary-read",
        "canary-on-the-wire",
        "write-outside-scope",
        "persistence",
        "control-socket",
        "undeclared-exec",
        "fileless-exec",
        "tracer-tampering",
        "read-only-broken",
        "manifest-changed",
        "behaviour-changed",
        "differs-between-inputs",
        "differs-after-calls",
    }


def rule(**fields: object) -> dict[str, object]:
    return {"id": "a-rule", "severity": "high", "description": "It does.", **fields}


@pytest.mark.parametrize(
    "rules",
    [
        [rule(all=["no_such_fact"])],
        [rule(capability=["fs.dream"])],
        [rule(severity="dire")],
        [rule(whatever=1)],
        [rule(), rule()],
        [rule(supersedes=["another"])],
        [rule(exceptions=[{"pats": ["/x"]}])],
    ],
)
def test_a_rule_that_says_what_is_not_known_is_refused(rules: list[object]) -> None:
    with pytest.raises(ValidationError):
        Rulebook.model_validate({"version": 1, "rules": rules})


def test_an_exception_fits_where_all_of_it_does() -> None:
    book = Rulebook.model_validate(
        {
            "version": 1,
            "rules": [rule(capability=["fs.read"], exceptions=[{"paths": ["~/.npmrc"], "programs": ["npm"]}])],
        }
    )
    seen = Observation(Capability.FS_READ, "open", 1, 1.0, "", path="/h/.npmrc")
    speaks = book.rules[0].speaks_of
    assert not speaks(ProbeObservation(seen, 0, "npm"), "~/.npmrc", frozenset())
    assert speaks(ProbeObservation(seen, 0, "curl"), "~/.npmrc", frozenset())
    assert speaks(ProbeObservation(seen, 0, "npm"), "~/.env", frozenset())


def test_the_documentation_has_every_rule_and_every_fact() -> None:
    page = (REPOSITORY / "docs" / "probe.md").read_text()
    told = re.findall(r"^\| `([a-z-]+)` \| (high|info) \|", page, re.MULTILINE)
    assert sorted(told) == sorted((rule.id, rule.severity) for rule in rulebook().rules)
    for fact in FACTS:
        assert f"`{fact}`" in page
