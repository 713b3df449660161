"""The console starts and stops with its host, and takes nothing over."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import stat
from pathlib import Path

import pytest

from proxy.admin_api.server import AdminApiServer
from proxy.errors import ConfigError
from tests.admin_api.conftest import Served
from tests.support.timeouts import PATIENCE


async def test_it_leaves_no_socket_behind(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.admin_api.start()
    assert stat.S_IMODE(served.admin_api.path.stat().st_mode) == 0o600
    await served.admin_api.stop()
    assert not served.admin_api.path.exists()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", served.port)


async def test_signals_stay_with_the_host(served: Served) -> None:
    before = signal.getsignal(signal.SIGTERM)
    async with served.client() as http:
        assert (await http.get("/proposals")).status_code == 200
    assert signal.getsignal(signal.SIGTERM) is before


async def test_without_a_setting_there_is_no_tcp_port(tmp_path: Path) -> None:
    served = Served(tmp_path)
    admin_api = AdminApiServer(served.world.review, served.tokens, served.world, tmp_path)
    admin_api.start()
    assert admin_api.addresses == ()
    assert len(admin_api._served) == 1
    await admin_api.stop()


async def test_an_address_that_is_taken_stops_the_start(served: Served, tmp_path: Path) -> None:
    other = AdminApiServer(served.world.review, served.tokens, served.world, tmp_path / "x", ("127.0.0.1", served.port))
    with pytest.raises(ConfigError, match="operator_listen"):
        other.start()
    await other.stop()


async def test_a_request_under_way_is_finished_at_a_stop(served: Served) -> None:
    going, release = asyncio.Event(), asyncio.Event()
    real = served.world.proposals

    async def slow(*arguments: object) -> object:
        going.set()
        await release.wait()
        return await real(*arguments)  # type: ignore[arg-type]

    served.world.proposals = slow  # type: ignore[method-assign, assignment]
    async with served.client() as http:
        answer = asyncio.create_task(http.get("/proposals"))
        await asyncio.wait_for(going.wait(), PATIENCE)
        stopping = asyncio.create_task(served.admin_api.stop())
        await asyncio.sleep(0)
        release.set()
        assert (await asyncio.wait_for(answer, PATIENCE)).status_code == 200
        await asyncio.wait_for(stopping, PATIENCE)


async def test_nothing_is_made_to_serve_before_somebody_comes(served: Served) -> None:
    assert [each._server for each in served.admin_api._served] == [None, None]
    async with served.client() as http:
        assert (await http.get("/proposals")).status_code == 200
    tcp, unix = served.admin_api._served
    assert tcp._server is None
    assert unix._server is not None


async def test_a_connection_that_comes_as_it_stops_is_closed(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.admin_api.start()
    reader, writer = await asyncio.open_unix_connection(served.admin_api.path)
    await asyncio.wait_for(served.admin_api.stop(), PATIENCE)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
    writer.close()
    with contextlib.suppress(ConnectionResetError):
        await writer.wait_closed()
