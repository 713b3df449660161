"""Finding, starting and stopping a server."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from proxy.errors import StartError
from proxy.sandbox import server_process as module
from proxy.sandbox.server_process import Launch, ServerProcess, plan_launch, start_server
from tests.support.timeouts import PATIENCE

SH = "/bin/sh"


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, str]:
    """Two folders on PATH: the first holds files that cannot be run."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    (tmp_path / "first" / "tool").write_text("")
    (tmp_path / "first" / "plain").write_text("")
    (tmp_path / "second" / "tool").write_text("")
    (tmp_path / "second" / "tool").chmod(0o755)
    return {"PATH": f"{tmp_path}/first:{tmp_path}/second"}


def test_a_program_is_found_as_a_shell_finds_it(folders: dict[str, str], tmp_path: Path) -> None:
    assert plan_launch(["tool", "-x"], folders) == Launch(f"{tmp_path}/second/tool", ("tool", "-x"))
    path = f"{tmp_path}/second/tool"
    assert plan_launch([path], folders) == Launch(path, (path,))


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("nothing", 127, "no such file"),
        ("/no/such/thing", 127, "no such file"),
        ("plain", 126, "permission denied"),
        ("/", 126, "is a directory"),
    ],
)
def test_a_program_that_is_not_there_is_told_with_a_shells_code(
    name: str, code: int, said: str, folders: dict[str, str]
) -> None:
    with pytest.raises(StartError, match=f"interlock run: cannot start '{name}': {said}") as raised:
        plan_launch([name], folders)
    assert raised.value.code == code


def launch(script: str) -> Launch:
    return Launch(SH, ("sh", "-c", script))


async def test_a_server_that_ends_while_it_is_started_has_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    start = loop.subprocess_exec

    async def slowly(make: Any, *words: Any, **more: Any) -> Any:
        transport, protocol = await start(make, *words, **more)
        pipe = transport.get_pipe_transport(1).get_extra_info("pipe")
        async with asyncio.timeout(PATIENCE):
            while not pipe.closed:
                await asyncio.sleep(0.01)
        return transport, protocol

    monkeypatch.setattr(loop, "subprocess_exec", slowly)
    server = await start_server(launch("exit 3"))
    assert server.stdout_inode == 0
    assert await server.stop(PATIENCE) == 3
    await server.clean_up()


async def test_a_server_reads_and_writes_and_ends() -> None:
    server = await start_server(launch("read line; echo got $line; exit 3"))
    await server.write(b"x\n")
    assert await server.read() == b"got x\n"
    assert await server.ended() == 3
    assert await server.stop(0.1) == 3
    await server.clean_up()


async def test_the_pipes_are_those_that_the_server_has() -> None:
    server = await start_server(launch("stat -L -c %i /dev/fd/1"))
    assert await server.read() == f"{server.stdout_inode}\n".encode()
    await server.clean_up()


async def test_one_byte_that_is_gone_shows_that_a_server_reads() -> None:
    server = await start_server(launch("head -c 1 >/dev/null; echo read; exec sleep 60"))
    assert not server.has_read()
    await server.write(b"x" * 99)
    assert await server.read() == b"read\n"
    assert server.has_read()
    await server.clean_up()
    assert server.has_read()


async def test_what_waits_for_room_in_the_pipe_was_not_read() -> None:
    server = await start_server(launch("exec sleep 60"))
    writing = asyncio.create_task(server.write(b"x" * (1 << 20)))
    await asyncio.sleep(0)
    assert not writing.done()
    assert not server.has_read()
    writing.cancel()
    await server.clean_up()


async def test_an_end_of_input_is_enough_for_most() -> None:
    server = await start_server(launch("cat; exit 2"))
    assert await server.stop(10) == 2
    await server.clean_up()


async def test_one_that_stays_is_terminated_then_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TERM_SECONDS", PATIENCE)
    polite = await start_server(launch("exec sleep 60"))
    assert await polite.stop(0.1) == 128 + signal.SIGTERM
    monkeypatch.setattr(module, "TERM_SECONDS", 0.1)
    stubborn = await start_server(launch("trap '' TERM; echo ready; while :; do sleep 1; done"))
    assert await stubborn.read() == b"ready\n"
    assert await stubborn.stop(0.1) == 128 + signal.SIGKILL
    for server in (polite, stubborn):
        await server.clean_up()


async def test_a_reaper_that_its_server_stopped_is_killed_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TERM_SECONDS", 0.1)
    monkeypatch.setattr(module, "KILL_SECONDS", 0.1)
    server = await start_server(launch("trap '' TERM; kill -STOP $PPID; echo $$; while :; do sleep 1; done"))
    pid = int(await server.read())
    assert await asyncio.wait_for(server.stop(0.1), PATIENCE) == 128 + signal.SIGKILL
    await server.clean_up()
    async with asyncio.timeout(PATIENCE):  # the reaper's end is its end
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)


async def test_what_is_cleaned_up_is_gone() -> None:
    server = await start_server(launch("echo $$; exec sleep 60"))
    pid = int(await server.read())
    await server.clean_up()
    assert not Path(f"/proc/{pid}").exists()
    server.signal(signal.SIGTERM)
    assert await asyncio.wait_for(server.ended(), PATIENCE) == 128 + signal.SIGKILL


async def write_on(server: ServerProcess) -> None:
    while True:
        await server.write(b"x" * 100_000)


async def test_writing_to_one_that_reads_no_more_raises() -> None:
    server = await start_server(launch("exec <&-; echo closed; sleep 60"))
    assert await server.read() == b"closed\n"
    with pytest.raises(OSError):
        await asyncio.wait_for(write_on(server), PATIENCE)
    await server.clean_up()
