"""The ways in: addresses that are taken, proxies that run, and shells that lead elsewhere."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from proxy.agent.env import ProxyEndpoint, change, proxy_url, through_proxy
from proxy.config import Settings
from proxy.doctor import network
from proxy.identity.ca import Authority
from proxy.system.run_file import RunningProxy


def running(listen: str, problem: str | None = None) -> RunningProxy:
    return RunningProxy(os.getpid(), listen, "regular", "ca.pem", "p.yaml", "v", 1.0, problem)


def test_an_address_is_free_or_ours_or_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = f"127.0.0.1:{server.getsockname()[1]}"
        settings = Settings(state_dir=tmp_path, listen=taken, operator_listen="127.0.0.1:0")
        found = {one.check: one for one in network.addresses(settings, None)}
        assert (found["listen"].state, found["operator_listen"].state) == ("fail", "ok")
        assert "ss -ltnp" in found["listen"].mend
        assert {one.check: one.state for one in network.addresses(settings, running(taken))}["listen"] == "ok"
    for address in ("203.0.113.7:1", "no.such.host.invalid:1"):
        found = {one.check: one for one in network.addresses(Settings(state_dir=tmp_path, listen=address), None)}
        assert found["listen"].state == "fail"


def test_a_proxy_that_runs_by_an_older_policy_is_told(tmp_path: Path) -> None:
    states = [
        one.state for each in (None, running("x:1"), running("x:1", "bad")) for one in network.proxy(each, tmp_path)
    ]
    assert states == ["ok", "ok", "fail"]


def test_a_shell_that_leads_to_us_must_trust_us(tmp_path: Path) -> None:
    files = Authority(tmp_path)
    files.ensure()
    settings = Settings(state_dir=tmp_path)
    endpoint = ProxyEndpoint(
        proxy_url(settings.listen), str(files.certificate_file), str(files.bundle_file), str(files.node_file)
    )
    through = change({}, through_proxy(endpoint))

    def state(environ: dict[str, str]) -> str:
        (found,) = network.environment(settings, None, environ)
        return found.state

    assert state({}) == "ok"
    assert state(through) == "ok"
    assert state(through | {"NO_PROXY": "example.com"}) == "warn"
    assert state({"HTTPS_PROXY": endpoint.url}) == "fail"
    assert state(through | {"SSL_CERT_FILE": os.devnull}) == "fail"
    assert state({"HTTPS_PROXY": endpoint.url, "NODE_EXTRA_CA_CERTS": str(tmp_path)}) == "fail"
