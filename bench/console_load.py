"""Whether open consoles slow the proxy: `python -m bench.console_load [SECONDS]`.

500 calls a second through a real proxy, by turns with no browser and with 50 that follow the list of calls. Says the
p99 of the calls of both, and the processor time of the console's process and of the worker.
"""

import asyncio
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.figures import Figure
from proxy.console.security import split_place
from proxy.identity.token_file import read_token

RATE = 500
CONNECTIONS = 20
BROWSERS = 50
TURNS = 3
BODY = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "hello"}}}
).encode()
ANSWER = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "hello"}]}}).encode()


async def read_message(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    )
    return await reader.readexactly(length)


async def answer(reader, writer):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
    try:
        while True:
            await read_message(reader)
            writer.write(head + ANSWER)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def calls(port, target, seconds):
    """Make RATE calls a second at their due times; return how long each took, in milliseconds."""
    request = (
        f"POST http://{target}/mcp HTTP/1.1\r\nHost: {target}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(BODY)}\r\n\r\n"
    ).encode() + BODY
    took = []

    async def one(number):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began, step = time.perf_counter() + number / RATE, CONNECTIONS / RATE
        for turn in range(int(seconds / step)):
            due = began + turn * step
            await asyncio.sleep(max(0, due - time.perf_counter()))
            started = time.perf_counter()
            writer.write(request)
            await read_message(reader)
            took.append((time.perf_counter() - started) * 1000)
        writer.close()

    await asyncio.gather(*(one(number) for number in range(CONNECTIONS)))
    return took


def log_in(run, token):
    address, headers = run["console"].removeprefix("http://"), {"Origin": run["console"]}
    browser = http.client.HTTPConnection(address)
    headers["Content-Type"] = "application/x-www-form-urlencoded"
    browser.request("POST", "/login", f"token={token}", headers)
    answer = browser.getresponse()
    return answer.getheader("set-cookie").partition(";")[0], split_place(answer.getheader("location"))[0]


async def follow(run, session, seen):
    cookie, place = session
    host, port = run["console"].removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {place}/stream?calls=1 HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\n\r\n".encode())
    try:
        while data := await reader.read(1 << 16):
            seen[0] += data.count(b"event: call")
    finally:
        writer.close()


def cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def p99(took):
    return statistics.quantiles(took, n=100)[98]


async def measure(run, token, seconds):
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    target = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    port, session = int(run["listen"].rpartition(":")[2]), log_in(run, token)
    worker = run["workers"][0]["pid"]
    console = next(p for p in map(int, children(run["pid"])) if p != worker)
    await calls(port, target, 2)
    alone, watched, spent, seen = [], [], [0.0, 0.0], [0]
    for _ in range(TURNS):
        alone += await calls(port, target, seconds)
        watching = [asyncio.create_task(follow(run, session, seen)) for _ in range(BROWSERS)]
        await asyncio.sleep(1)
        before = cpu(console), cpu(worker)
        watched += await calls(port, target, seconds)
        spent = [spent[0] + cpu(console) - before[0], spent[1] + cpu(worker) - before[1]]
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
    server.close()
    yield Figure("p99 of a call, no console open", p99(alone), "ms")
    yield Figure(f"p99 of a call, {BROWSERS} consoles open", p99(watched), "ms")
    yield Figure("the one over the other", p99(watched) / p99(alone), "times", at_most=1.1)
    yield Figure("median, no console open", statistics.median(alone), "ms")
    yield Figure(f"median, {BROWSERS} consoles open", statistics.median(watched), "ms")
    yield Figure("the console's share of a core", 100 * spent[0] / (TURNS * seconds), "%")
    yield Figure("the worker's share of a core", 100 * spent[1] / (TURNS * seconds), "%")
    yield Figure("lines sent to each browser a second", seen[0] / BROWSERS / (TURNS * seconds), "")


def children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


async def print_all(run, token, seconds):
    async for figure in measure(run, token, seconds):
        print(figure, flush=True)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    with tempfile.TemporaryDirectory(prefix="interlock-bench-") as folder:
        state = Path(folder) / "state"
        flags = [
            "--listen",
            "127.0.0.1:0",
            "--health-listen",
            "off",
            "--console-listen",
            "127.0.0.1:0",
            "--workers",
            "1",
        ]
        flags += ["--state-dir", str(state), "--log-level", "error"]
        process = subprocess.Popen([sys.executable, "-m", "proxy.cli", "up", *flags], stdout=subprocess.DEVNULL)
        try:
            while not (state / "run.json").exists():
                assert process.poll() is None, "interlock did not start"
                time.sleep(0.05)
            run = json.loads((state / "run.json").read_bytes())
            asyncio.run(print_all(run, read_token(state / "keys" / "operator.token"), seconds))
        finally:
            process.terminate()
            process.wait(60)


if __name__ == "__main__":
    main()
