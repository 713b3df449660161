"""Where a path below a home folder may lead."""

import pytest

from proxy.core.model import Call
from proxy.policy.decide import CompiledPolicy
from proxy.policy.home import UNKNOWN_HOMES, expand_home, own_home
from proxy.policy.rules import PolicyFile

MINE = ("/home/me",)


@pytest.mark.parametrize(
    "text",
    [
        *("~/x", "$HOME/x", "${HOME}/x", "%USERPROFILE%/x", "$env:USERPROFILE/x", "${env:HOME}/x", "${userHome}/x"),
        *("%HOMEDRIVE%%HOMEPATH%\\x", "~\\x", "~//x", "$home/x"),
    ],
)
def test_every_spelling_of_the_home_leads_to_it(text):
    assert expand_home(text, MINE) == ("/home/me/x",)


def test_the_home_of_another_user_is_where_homes_are():
    assert expand_home("~bob/x", MINE) == ("/home/bob/x", "/Users/bob/x", "C:/Users/bob/x")
    assert expand_home("~root/x", MINE) == ("/root/x",)
    assert expand_home("~me/x", ("/srv/homes/me",))[0] == "/srv/homes/me/x"


@pytest.mark.parametrize("text", ["/x", "notes~", "~+/x", "~-", "~1/x", "$HOMEX/x", "${HOME:-/x}/y", "%PATH%/x", "x/~"])
def test_nothing_else_is_a_home(text):
    assert expand_home(text, UNKNOWN_HOMES) is None


def test_where_the_home_is_not_known_every_usual_place_counts():
    assert expand_home("~", UNKNOWN_HOMES) == ("/root/", "/home/*/", "/Users/*/", "C:/Users/*/", "/")


def decide(rule, path, **content):
    made = PolicyFile.model_validate({"version": 1, "rules": [{"id": "r", **rule}], **content})
    homes = [made.home] if isinstance(made.home, str) else made.home or ()
    policy = CompiledPolicy(made.rules, default="allow" if rule["action"] == "deny" else "deny", homes=homes)
    return policy.decide(Call("tools/call", "s", "a", "t", {"path": path})).reason


ROOT = {"action": "deny", "when": {"arg": "path", "path_under": "/root"}}
WORK = {"action": "allow", "when": {"arg": "path", "path_under": "/home/me/work"}}


def test_a_known_home_makes_the_answer_sure():
    assert decide(ROOT, "~/x") == "policy_denied"
    assert decide(ROOT, "~/x", home="/home/me") == "default_allow"
    assert decide(ROOT, "~/x", home="/root") == "policy_denied"
    assert decide(WORK, "~/work/x") == "default_deny"
    assert decide(WORK, "~/work/x", home="/home/me/") == "policy_allowed"
    assert decide(WORK, "~/work/../x", home="/home/me") == "default_deny"


def test_with_several_homes_a_deny_looks_at_each_and_an_allow_is_not_sure():
    assert decide(ROOT, "$HOME/x", home=["/home/me", "/root"]) == "policy_denied"
    assert decide(WORK, "~/work/x", home=["/home/me", "/root"]) == "default_deny"


def test_a_folder_of_a_rule_below_the_home_is_protected_wherever_homes_are():
    rule = {"action": "deny", "when": {"arg": "path", "path_under": "~/.bashrc"}}
    for path in ("/root/.bashrc", "/home/me/.bashrc", "/Users/me/.bashrc", "C:\\Users\\me\\.bashrc", "~/.bashrc"):
        assert decide(rule, path) == "policy_denied", path
    for path in ("/srv/.bashrc", "/home/me/x/.bashrc", ".bashrc_old"):
        assert decide(rule, path) == "default_allow", path


@pytest.mark.parametrize("home", ["home/me", "~", ""])
def test_a_home_is_a_full_path(home):
    with pytest.raises(ValueError, match=r"full path|at least 1"):
        PolicyFile.model_validate({"version": 1, "home": home})


@pytest.mark.parametrize("program", ["docker", "/usr/bin/podman", "ssh", "sudo", "env", "bash", "bwrap"])
def test_a_server_that_may_run_elsewhere_has_no_home_that_is_known(program):
    assert own_home([program, "x"], {"HOME": "/home/me"}) is None


@pytest.mark.parametrize(("home", "known"), [("/home/me/", "/home/me"), ("", None), ("/", None), ("me", None)])
def test_a_server_that_starts_here_has_our_home(home, known):
    assert own_home(["npx", "x"], {"HOME": home}) == known
    assert own_home(["/usr/bin/node", "x"], {}) is None
