"""The policies that travel with Interlock."""

import pytest

from proxy.core.model import Call, Outcome
from proxy.policy.conditions import earlier_in
from proxy.policy.lint import lint, lint_egress
from proxy.policy.load import load_policy, load_sources
from proxy.policy.rule_tests import coverage, run_tests
from proxy.policy.rules import EgressPolicy
from proxy.system.package_data import policies_dir

FILES = sorted(policies_dir().glob("*.yaml"))


def test_the_default_policy_and_the_packs_are_there():
    names = {file.stem for file in FILES}
    assert {"default", "filesystem", "git", "payments", "shell", "web"} <= names


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_the_tests_beside_every_rule_pass(file):
    (source,) = load_sources(file)
    egress = source.content.egress.rules if source.content.egress else []
    failed = [result for result in run_tests(source.content.rules, egress) if not result.passed]
    assert not failed


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_every_rule_is_seen_to_match_and_seen_not_to(file):
    (source,) = load_sources(file)
    egress = source.content.egress.rules if source.content.egress else []
    # What came before a call, a test beside the rule cannot say: tests/profiles/cases/chains.yaml does.
    alone = [rule for rule in source.content.rules if not any(earlier_in(rule.when))]
    rules = [*alone, *egress]
    assert not [c.rule for c in coverage(rules, run_tests(source.content.rules, egress)) if not c.complete]


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_lint_has_nothing_to_say(file):
    (source,) = load_sources(file)
    assert lint(source.content.rules, source.content.default) == ()
    assert lint_egress(source.content.egress or EgressPolicy()) == ()


def test_all_of_them_load_together():
    assert load_policy(policies_dir()).default == "allow"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_text_file", {"path": "/home/me/project/README.md"}),
        ("write_file", {"path": "src/app.py", "content": "# ~ $HOME /etc/passwd\n" * 500}),
        ("push_files", {"branch": "x", "files": [{"path": "a.txt", "content": "~/x " * 3000}]}),
        ("fetch", {"url": "https://example.com/a?b=c#d", "max_length": 5000, "raw": False}),
        ("execute_sql", {"sql": "select * from t where a = '~'", "args": [1, None]}),
        ("browser_evaluate", {"function": "() => { return `x` }"}),
        ("run_command", {"command": "npm test -- --watch=false && git diff | head -50"}),
        ("search", {"query": "how does /etc/passwd work?", "path": None}),
        ("create_issue", {"title": "curl http://169.254.169.254 hangs", "body": "`rm -rf /`"}),
        ("jq", {"path": ["items", 0], "file": {"name": "x"}}),
        ("grep", {"path": "**/*.py", "query": "x"}),
        ("find_files", {"paths": ["./**/*.{ts,tsx}", "src/**"]}),
        ("powershell", {"command": "Get-ChildItem | ForEach-Object { $_.FullName }"}),
        ("run_pwsh", {"script": '$x = Get-Date; Write-Host "a`n$x"'}),
    ],
)
def test_the_default_policy_does_not_stand_in_the_way_of_ordinary_work(tool, arguments):
    policy = load_policy(policies_dir() / "default.yaml")
    decision = policy.decide(Call("tools/call", "server", "agent", tool, arguments))
    assert decision.outcome is Outcome.ALLOW, decision


@pytest.mark.parametrize(
    ("path", "outcome"),
    [
        ("~/notes.txt", Outcome.ALLOW),
        ("$HOME/notes.txt", Outcome.ALLOW),
        ("%USERPROFILE%\\notes.txt", Outcome.ALLOW),
        ("~me/notes.txt", Outcome.ALLOW),
        ("/root/project/main.py", Outcome.ALLOW),
        ("~/.ssh/id_rsa", Outcome.DENY),
        ("${HOME}/.ssh/id_rsa", Outcome.DENY),
        ("%USERPROFILE%\\.ssh\\id_rsa", Outcome.DENY),
        ("~me/.ssh/id_rsa", Outcome.DENY),
        ("/root/.ssh/id_rsa", Outcome.DENY),
        ("/root/.bashrc", Outcome.DENY),
    ],
)
def test_a_home_is_open_and_the_keys_in_it_are_not(path, outcome):
    policy = load_policy(policies_dir() / "default.yaml")
    decision = policy.decide(Call("tools/call", "server", "agent", "write_file", {"path": path}))
    assert decision.outcome is outcome, decision
