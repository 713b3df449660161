"""The variables that lead an agent's programs through the proxy."""

from __future__ import annotations

import pytest

from proxy.agent.env import (
    BYPASS,
    PROXY,
    SHOWN,
    ProxyEndpoint,
    change,
    proxy_url,
    through_proxy,
    with_script,
    without_proxy,
)

ENTRANCE = ProxyEndpoint("http://127.0.0.1:8080", "/s/ca.pem", "/s/bundle.pem", "/s/node-proxy.cjs")


@pytest.mark.parametrize(
    ("address", "agent", "token", "url"),
    [
        ("127.0.0.1:8080", None, None, "http://127.0.0.1:8080"),
        ("0.0.0.0:1", None, None, "http://127.0.0.1:1"),
        ("[::]:1", None, None, "http://[::1]:1"),
        ("10.0.0.0:1", None, None, "http://10.0.0.0:1"),
        ("proxy:8080", "bot", "a/b@c:", "http://bot:a%2Fb%40c%3A@proxy:8080"),
    ],
)
def test_a_proxy_is_reached_where_it_listens(address: str, agent: str | None, token: str | None, url: str) -> None:
    assert proxy_url(address, agent, token) == url


def test_every_program_goes_through_and_trusts_both_the_proxy_and_the_systems_roots() -> None:
    changes = through_proxy(ENTRANCE)
    assert {changes[name] for name in PROXY} == {ENTRANCE.url}
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"):
        assert changes[name] == ENTRANCE.bundle
    assert changes["NODE_EXTRA_CA_CERTS"] == ENTRANCE.ca
    assert changes["NODE_USE_ENV_PROXY"] == "1"
    assert all(changes[name] for name in SHOWN)


def test_exceptions_and_what_is_ours_are_taken_out_and_the_rest_stays() -> None:
    was = {"NO_PROXY": "*", "no_proxy": "evil.example", "INTERLOCK_OPERATOR_TOKEN": "x", "HOME": "/h", "PIP_CERT": "y"}
    now = change(was, through_proxy(ENTRANCE))
    assert not {*BYPASS, "INTERLOCK_OPERATOR_TOKEN"} & now.keys()
    assert (now["HOME"], now["PIP_CERT"]) == ("/h", ENTRANCE.bundle)


def test_where_the_network_leads_through_the_proxy_no_variable_says_so() -> None:
    now = change({"HTTPS_PROXY": "http://old:1", "all_proxy": "x", "NO_PROXY": "*"}, without_proxy(ENTRANCE))
    assert not {*PROXY, *BYPASS, "NODE_USE_ENV_PROXY"} & now.keys()
    assert now["SSL_CERT_FILE"] == ENTRANCE.bundle


@pytest.mark.parametrize(
    ("options", "script", "value"),
    [
        ("", "/s/n.cjs", "--require /s/n.cjs"),
        ("--max-old-space-size=4096", "/s/n.cjs", "--require /s/n.cjs --max-old-space-size=4096"),
        ("--require /s/n.cjs --inspect", "/s/n.cjs", "--require /s/n.cjs --inspect"),
        ("", "/my state/n.cjs", '--require "/my state/n.cjs"'),
        ("", '/a"b\\c/n.cjs', '--require "/a\\"b\\\\c/n.cjs"'),
    ],
)
def test_node_loads_the_script_first_and_keeps_its_other_options(options: str, script: str, value: str) -> None:
    assert with_script(options, script) == value
