"""A stdio server whose tools touch files, so that a trace shows which call did: `busy.py MODE FOLDER`.

MODE is how calls run: `sync` (one after the other), `threads`, `async` (one thread, in turns) or `spawn` (a
process each, from threads). The tool `work` opens `FOLDER/truth-N-…`, N being its argument `n`; `path`, where it is
given, is opened too. Nothing beside the standard library, so that it starts fast.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

STEPS = 6


def touch(folder: Path, number: int, step: int) -> None:
    (folder / f"truth-{number}-{step}").exists()
    with (folder / f"truth-{number}-{step}").open("a"), (folder / f"truth-{number}-{step}").open() as file:
        file.read()


def work(folder: Path, arguments: dict[str, Any], pause: float = 0.002) -> None:
    for step in range(STEPS):
        if "path" in arguments and step in (0, 3):
            Path(arguments["path"]).read_bytes()
        touch(folder, arguments["n"], step)
        time.sleep(random.random() * pause)


async def work_in_turns(folder: Path, arguments: dict[str, Any]) -> None:
    for step in range(STEPS):
        if "path" in arguments and step in (0, 3):
            Path(arguments["path"]).read_bytes()
        touch(folder, arguments["n"], step)
        await asyncio.sleep(random.random() * 0.004)


def spawn(folder: Path, arguments: dict[str, Any]) -> None:
    number = arguments["n"]
    paths = " ".join(str(folder / f"truth-{number}-{step}") for step in range(STEPS))
    subprocess.run(["sh", "-c", f"touch {paths}; cat {paths} {arguments.get('path', '')} >/dev/null"], check=True)
    touch(folder, number, 0)


class Writer:
    def __init__(self) -> None:
        self._lock = threading.Lock()

    def answer(self, message: dict[str, Any], result: dict[str, Any]) -> None:
        with self._lock:
            line = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\n"
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


RESULT = {"content": [{"type": "text", "text": "done"}]}
OPENED = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "b", "version": "1"}}


def serve(mode: str, folder: Path) -> None:
    writer = Writer()

    def run(message: dict[str, Any]) -> None:
        (spawn if mode == "spawn" else work)(folder, message["params"]["arguments"])
        writer.answer(message, RESULT)

    while line := sys.stdin.buffer.readline():
        message = json.loads(line)
        if "id" not in message:
            continue
        if message["method"] != "tools/call":
            writer.answer(message, OPENED)
        elif mode == "sync":
            run(message)
        else:
            threading.Thread(target=run, args=(message,)).start()


async def serve_in_turns(folder: Path) -> None:
    loop, writer = asyncio.get_running_loop(), Writer()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks = set()

    async def run(message: dict[str, Any]) -> None:
        await work_in_turns(folder, message["params"]["arguments"])
        writer.answer(message, RESULT)

    while line := await reader.readline():
        message = json.loads(line)
        if message.get("method") == "tools/call":
            tasks.add(asyncio.create_task(run(message)))
        elif "id" in message:
            writer.answer(message, OPENED)
    await asyncio.gather(*tasks)


def main() -> None:
    mode, folder = sys.argv[1], Path(sys.argv[2])
    if mode == "async":
        asyncio.run(serve_in_turns(folder))
    else:
        serve(mode, folder)


if __name__ == "__main__":
    main()
