"""How long the console's pages take: `python -m bench.console [EVENTS] [--postgres]`.

A real proxy on a store with events of 30 days, one million unless told otherwise; pages over HTTP, as a browser gets
them. The first page includes the start of the console's process.
"""

import asyncio
import http.client
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.events import CONNECTIONS, DURABLE, fill
from bench.figures import Figure
from proxy.audit.open_events import open_events
from proxy.console.security import split_place
from proxy.identity.token_file import read_token
from tests.support.postgres import Postgres

EVENTS = 1_000_000
REPEATS = 7
PAGES = {
    "newest calls": "",
    "of a tool": "tool=tool_7",
    "of an agent": "agent=agent-3",
    "of a server": "server=mcp2.example.com%3A443",
    "denied": "decision=deny",
    "of a rule": "rule=rule-3",
    "tools by a glob": "tool=tool_1*",
    "with a text": "text=file7777",
    "with a text that there is nowhere": "text=no+such+text",
    "with a text in a day that has none": "text=no+such+text&since=24h",
}


OTHERS = {
    "overview of an hour": "/?since=1h",
    "overview of 24 hours": "/?since=24h",
    "overview of 7 days": "/?since=7d",
    "agents": "/agents",
    "servers": "/servers",
    "policy, with 2000 calls decided again": "/policy",
    "audit": "/audit",
    "health": "/health",
}


class Browser:
    def __init__(self, run):
        self.address = run["console"].removeprefix("http://")
        self.headers = {"Accept": "text/html", "Origin": run["console"]}
        self.http = http.client.HTTPConnection(self.address, timeout=120)
        self.place = ""

    def get(self, path):
        """Return the page and the milliseconds it took."""
        started = time.perf_counter()
        place = "" if self.place and path.startswith(self.place) else self.place
        self.http.request("GET", place + path, headers=self.headers)
        answer = self.http.getresponse()
        text = answer.read().decode()
        assert answer.status in (200, 303), text
        return text, (time.perf_counter() - started) * 1000

    def log_in(self, token):
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        self.http.request("POST", "/login", f"token={token}", self.headers | form)
        answer = self.http.getresponse()
        answer.read()
        self.headers["Cookie"] = answer.getheader("set-cookie").partition(";")[0]
        self.place, _ = split_place(answer.getheader("location"))


def median_ms(browser, path):
    return statistics.median(browser.get(path)[1] for _ in range(REPEATS))


def ask(browser, token, bound):
    """Return the figures of the pages; `bound` is for the first page of each list."""
    yield Figure("the first page, with the start of the process", browser.get("/calls")[1], "ms", at_most=1000)
    browser.log_in(token)
    for name, query in PAGES.items():
        yield Figure(f"a page of calls: {name}", median_ms(browser, f"/calls?{query}"), "ms", at_most=bound)
    path = "/calls"
    for _ in range(20):
        text, _ = browser.get(path)
        path = re.search(r'rel="next" href="([^"]+)"', text)[1].replace("&amp;", "&")
    yield Figure("a page of calls: the 21st", median_ms(browser, path), "ms", at_most=bound)
    one = re.search(r'<tr data-id="([^"]+)"', text)[1]
    yield Figure("one call", median_ms(browser, f"/calls/{one}"), "ms", at_most=bound)
    for name, path in OTHERS.items():
        yield Figure(name, median_ms(browser, path), "ms", at_most=1000)


def run_on(state, url, bound):
    flags = ["--listen", "127.0.0.1:0", "--health-listen", "off", "--console-listen", "127.0.0.1:0", "--workers", "1"]
    flags += ["--state-dir", str(state), "--log-level", "error"] + (["--database-url", url] if url else [])
    process = subprocess.Popen([sys.executable, "-m", "proxy.cli", "up", *flags], stdout=subprocess.DEVNULL)
    try:
        while not (state / "run.json").exists():
            assert process.poll() is None, "interlock did not start"
            time.sleep(0.05)
        run = json.loads((state / "run.json").read_bytes())
        for figure in ask(Browser(run), read_token(state / "keys" / "operator.token"), bound):
            print(figure, flush=True)
    finally:
        process.terminate()
        process.wait(60)


async def fill_store(state, url, count):
    store = open_events(url, state, timeout=300)
    await fill(store, count, CONNECTIONS if url else 1)
    await store.close()


def main():
    count = next((int(word.replace("_", "")) for word in sys.argv[1:] if word[0].isdigit()), EVENTS)
    with tempfile.TemporaryDirectory(prefix="interlock-bench-") as folder:
        state = Path(folder) / "state"
        state.mkdir(mode=0o700)
        if "--postgres" not in sys.argv:
            asyncio.run(fill_store(state, None, count))
            run_on(state, None, 1000)
            return
        server = Postgres(DURABLE)
        try:
            with server.lend() as url:
                asyncio.run(fill_store(state, url, count))
                server.psql("VACUUM ANALYZE", url)
                run_on(state, url, 200)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
