"""The console's socket: who has it, what happens when it cannot be had, and that agents cannot reach it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.config import Settings
from proxy.errors import ConfigError
from proxy.runtime.console_process import ConsoleProcess
from tests.daemon.test_operators import LOOPBACK, OPEN, machine_addresses, reason_of
from tests.daemon.waiting import next_refusal, refusals
from tests.support.harness import Interlock, free_port, interlock_cli, send_raw, start_interlock


def process(settings: Settings) -> ConsoleProcess:
    return ConsoleProcess(settings, None, lambda: None)  # type: ignore[arg-type]


def test_it_listens_where_it_is_told_and_says_where(tmp_path: Path) -> None:
    made = process(Settings(state_dir=tmp_path, console_listen="127.0.0.1:0"))
    try:
        assert made.address is not None
        assert made.url == f"http://127.0.0.1:{made.address[1]}"
        assert len(made.interests()) == 1
        assert not made.attend(-1)
    finally:
        made.stop()
    assert made.interests() == []


def test_nobody_else_can_listen_where_localhost_leads(tmp_path: Path) -> None:
    made = process(Settings(state_dir=tmp_path, console_listen="127.0.0.1:0"))
    assert made.address is not None
    for address in ("::1", "::"):
        with pytest.raises(OSError, match="in use"):
            socket.create_server((address, made.address[1]), family=socket.AF_INET6)
    made.stop()
    socket.create_server(("::1", made.address[1]), family=socket.AF_INET6).close()


def test_where_somebody_has_it_localhost_is_not_the_consoles(tmp_path: Path) -> None:
    with socket.create_server(("::1", free_port()), family=socket.AF_INET6) as taken:
        made = process(Settings(state_dir=tmp_path, console_listen=f"127.0.0.1:{taken.getsockname()[1]}"))
        assert made._guard is None
        made.stop()


def test_off_is_off(tmp_path: Path) -> None:
    made = process(Settings(state_dir=tmp_path, console_listen="off"))
    assert (made.address, made.url, made.interests()) == (None, None, [])


def test_a_chosen_address_that_is_taken_is_an_error_and_the_default_only_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match="console_listen"):
            process(Settings(state_dir=tmp_path, console_listen=address))
        default = Settings.model_construct(state_dir=tmp_path, console_listen=address)
        default.model_fields_set.clear()
        assert process(default).url is None


def test_a_url_of_its_own_is_what_operators_open(tmp_path: Path) -> None:
    url = "https://Console.Example.com/"
    made = process(Settings(state_dir=tmp_path, console_listen="127.0.0.1:0", console_url=url))
    assert made.url == "https://console.example.com"
    made.stop()
    everywhere = process(Settings(state_dir=tmp_path, console_listen="0.0.0.0:0"))
    assert str(everywhere.url).startswith("http://127.0.0.1:")
    everywhere.stop()


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interlock]:
    flags = ["--console-listen", "0.0.0.0:0"]
    folder = tmp_path_factory.mktemp("proxy")
    with start_interlock(folder, policy=OPEN, program=["tests.daemon.named"], flags=flags) as running:
        yield running


def console_port(interlock: Interlock) -> int:
    return int(interlock.console_url.rpartition(":")[2])


HOSTS = [*LOOPBACK, *(f"[{a}]" if ":" in a else a for a in machine_addresses())]


@pytest.mark.parametrize("host", HOSTS)
def test_the_proxy_forwards_nothing_to_the_console_by_any_name(host: str, interlock: Interlock) -> None:
    target = f"{host}:{console_port(interlock)}"
    for line in (f"GET http://{target}/login", f"CONNECT {target}", f"POST http://{target}/login"):
        request = f"{line} HTTP/1.1\r\nHost: {target}\r\nContent-Length: 0\r\n\r\n"
        received = send_raw("127.0.0.1", interlock.port, [request.encode()])
        assert reason_of(received) == (403, "egress_denied"), line


def test_a_refusal_tells_that_it_was_an_operators_port(interlock: Interlock) -> None:
    seen = len(refusals(interlock))
    target = f"127.0.0.1:{console_port(interlock)}"
    send_raw("127.0.0.1", interlock.port, [f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()])
    assert next_refusal(interlock, seen)["detail"] == {"egress": "operator_port"}


def test_a_chosen_port_that_is_taken_stops_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = interlock_cli(
            *("up", "--listen", "127.0.0.1:0", "--health-listen", "off", "--console-listen", address),
            *("--state-dir", str(tmp_path / "state")),
        )
    assert done.returncode == 1
    assert f"console_listen = '{address}'" in done.stderr
