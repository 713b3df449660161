"""A server has one name, and a rule that names it by another holds all the same."""

from __future__ import annotations

import pytest

from proxy.core.model import Call, Outcome
from proxy.policy.decide import CompiledPolicy
from proxy.policy.rules import AllowRule, DenyRule
from proxy.policy.server_names import aliases, canonical_name, compile_servers, server_name, spellings

THIS_MACHINE = [
    *(
        "127.0.0.1",
        "2130706433",
        "127.1",
        "127.0.1",
        "0x7f.1",
        "0X7F.0.0.1",
        "0x7f000001",
        "0177.0.0.1",
        "017700000001",
    ),
    *(
        "017700000001",
        "127.0.0.1.",
        "0",
        "0.0.0.0",
        "0x0",
        "00",
        "[::ffff:127.0.0.1]",
        "::ffff:7f00:1",
        "[0:0:0:0:0:ffff:7f00:1]",
    ),
    *(
        "\uff11\uff12\uff17.0.0.1",
        "127\u30020\u30020\u30021",
        "%31%32%37.0.0.1",
        "[::ffff:127.0.0.1%lo]",
        "[::ffff:0.0.0.0]",
    ),
]


@pytest.mark.parametrize("host", THIS_MACHINE)
def test_every_spelling_of_an_address_has_one_name(host: str):
    assert server_name(host, 8000, 80) == "127.0.0.1:8000"


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("Example.COM.", "example.com"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("ex%61mple.com", "example.com"),
        ("\uff45xample.com", "example.com"),
        ("exa\u00admple.com", "example.com"),
        ("[FE80::0:1%eth0]", "fe80::1"),
        ("[fe80::1%25eth0]", "fe80::1"),
        ("[::]", "::1"),
        ("[0:0::1]", "::1"),
        ("1.2.3.4.5", "1.2.3.4.5"),
        ("a b", "a b"),
    ],
)
def test_names_are_written_one_way(host: str, name: str):
    assert canonical_name(host) == name


def test_a_port_is_named_where_it_is_not_the_schemes_own():
    assert server_name("h", 443, 443) == "h"
    assert server_name("h", 443, 80) == "h:443"
    assert server_name("::1", 8000, 80) == "[::1]:8000"
    assert server_name("::1", 80, 80) == "::1"


def deny(*servers: str) -> CompiledPolicy:
    rule = DenyRule(id="no", action="deny", servers=list(servers), tools=["danger"])
    return CompiledPolicy([rule], default="allow")


def outcome(policy: CompiledPolicy, server: str) -> Outcome:
    return policy.decide(Call("tools/call", server, "agent", "danger", {})).outcome


@pytest.mark.parametrize("written", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST:8000", "[::1]:8000", "127.1:8000"])
@pytest.mark.parametrize("host", [*THIS_MACHINE, "localhost", "127.0.0.2", "::1", "a.localhost", "127.0.0.1.nip.io"])
def test_a_restriction_of_this_machine_holds_by_any_of_its_names(written: str, host: str):
    server = server_name(host, 8000, 80)
    assert outcome(deny(written), server) is Outcome.DENY
    assert outcome(deny(written), server.replace("8000", "8001")) is Outcome.ALLOW


@pytest.mark.parametrize("written", ["localhost:*", "127.0.0.?:8000", "LocalHost:*", "[::1]:8000"])
def test_a_glob_holds_by_any_name_as_well(written: str):
    assert outcome(deny(written), "127.0.0.1:8000") is Outcome.DENY


@pytest.mark.parametrize("written", ["h.example", "h.example:443", "H.example.", "h.EXAMPLE:80"])
def test_the_schemes_own_port_may_be_written_or_not(written: str):
    assert outcome(deny(written), "h.example") is Outcome.DENY
    assert outcome(deny(written), "h.example:8443") is Outcome.ALLOW


def test_a_rule_in_letters_of_another_script_holds_for_the_name_on_the_wire():
    assert outcome(deny("bücher.example"), "xn--bcher-kva.example") is Outcome.DENY


def test_an_allow_covers_the_spellings_of_its_server_and_no_other_address():
    rule = AllowRule(id="yes", action="allow", servers=["localhost:8000"], tools=["danger"])
    policy = CompiledPolicy([rule], default="deny")
    assert outcome(policy, "127.0.0.1:8000") is Outcome.ALLOW
    assert outcome(policy, "127.0.0.2:8000") is Outcome.DENY
    assert outcome(policy, "[::1]:8000") is Outcome.DENY


def test_names_that_are_no_hosts_stay_as_they_are():
    assert spellings("my server: a") == aliases("my server: a") == {"my server: a"}
    assert compile_servers(["files"], strictly=True)("files")
    assert not compile_servers(["files"], strictly=False)("file")
    assert compile_servers(None, strictly=True)("anything")
