"""Our own stdin and stdout."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from proxy.stdio.pipes import BlockingWorker, DescriptorReader, DescriptorWriter
from tests.support.timeouts import PATIENCE


async def test_bytes_pass_from_an_outlet_to_an_inlet() -> None:
    reading, writing = os.pipe()
    inlet, outlet = DescriptorReader(reading), DescriptorWriter(writing)
    data = os.urandom(1 << 20)
    sending = asyncio.create_task(outlet.write(data))
    got = b""
    while len(got) < len(data):
        got += await inlet.read()
    await sending
    os.close(writing)
    assert got == data
    assert await inlet.read() == b""


async def test_writes_stand_together_and_in_their_order() -> None:
    reading, writing = os.pipe()
    outlet = DescriptorWriter(writing)
    writes = [asyncio.create_task(outlet.write(bytes([65 + n]) * 50_000)) for n in range(4)]
    inlet, got = DescriptorReader(reading), b""
    while len(got) < 200_000:
        got += await inlet.read()
    await asyncio.gather(*writes)
    assert got == b"".join(bytes([65 + n]) * 50_000 for n in range(4))


async def test_descriptors_that_do_not_block_are_waited_for() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    inlet, outlet = DescriptorReader(reading), DescriptorWriter(writing)
    first = asyncio.create_task(inlet.read())
    await asyncio.sleep(0)
    sending = asyncio.create_task(outlet.write(b"x" * 300_000))
    got = await first
    while len(got) < 300_000:
        got += await inlet.read()
    await sending


async def test_a_file_can_be_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    with (tmp_path / "f").open("rb") as file:
        inlet = DescriptorReader(file.fileno())
        assert await inlet.read() == b"abc"
        assert await inlet.read() == b""


async def test_writing_where_nobody_reads_raises() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        await DescriptorWriter(writing).write(b"x")


async def test_work_that_nobody_waits_for_any_more_is_done_all_the_same() -> None:
    hand, go = BlockingWorker("test"), threading.Event()
    waiting = asyncio.create_task(hand.do(go.wait))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go.set()
    assert await hand.do(lambda: 7) == 7


TAKING = """
import os, sys
from proxy.stdio.pipes import take_standard_streams
reading, writing = take_standard_streams()
print("stray")
sys.stdout.flush()
assert sys.stdin.read() == ""
assert not os.get_inheritable(reading) and not os.get_inheritable(writing)
os.write(writing, os.read(reading, 100))
"""


def test_what_else_is_printed_misses_the_wire() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TAKING], input=b"wire", capture_output=True, check=True, timeout=PATIENCE
    )
    assert (done.stdout, done.stderr) == (b"wire", b"stray\n")


async def test_sockets_are_read_and_written_without_threads() -> None:
    before = threading.active_count()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        inlet, outlet = DescriptorReader(ours.fileno()), DescriptorWriter(theirs.fileno())
        data = os.urandom(1 << 20)
        sending = asyncio.create_task(outlet.write(data))
        got = b""
        while len(got) < len(data):
            got += await inlet.read()
        await sending
        assert got == data
        # The flag of the open file, which others share, is as it was.
        assert os.get_blocking(ours.fileno())
        assert os.get_blocking(theirs.fileno())
    assert threading.active_count() <= before


async def test_where_the_kernel_cannot_do_without_waiting_threads_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(os, "preadv", refuse)
    monkeypatch.setattr(os, "pwritev", refuse)
    reading, writing = os.pipe()
    await DescriptorWriter(writing).write(b"abc")
    assert await DescriptorReader(reading).read() == b"abc"
