"""An agent that visits a site and an MCP server with every client that people have, and knows of no proxy.

Run as `python tests/support/agent_visits.py FOLDER NODE SITE_URL MCP_URL`; prints one JSON object of what each client
saw. The site has `hello.txt` and, for git, `repo.git`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import requests
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

LIMIT = 60
FETCH = "fetch(process.argv[1]).then((answer) => answer.text()).then((text) => process.stdout.write(text))"


def output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    return done.stdout if done.returncode == 0 else f"failed: {done.stderr}"


def clone(site: str, folder: Path) -> str:
    said = output("git", "clone", "-q", f"{site}/repo.git", str(folder / "clone"))
    return said or (folder / "clone" / "hello.txt").read_text()


def call_tools(url: str) -> dict[str, Any]:
    async def calls() -> dict[str, Any]:
        async with Client(streamable_http_client(url), read_timeout_seconds=LIMIT) as client:
            allowed = await client.call_tool("echo", {"text": "hi"})
            denied = await client.call_tool("danger", {})
        return {
            "allowed": allowed.content[0].text,
            "denied": denied.meta["mcp-interlock/denial"]["reason"] if denied.is_error and denied.meta else None,
        }

    return asyncio.run(calls())


def open_url(url: str) -> str:
    with urllib.request.urlopen(url, timeout=LIMIT) as answer:
        return str(answer.read().decode())


def attempt(visit: Callable[[], Any]) -> Any:
    try:
        return visit()
    except Exception as error:  # noqa: BLE001  what it saw
        return f"failed: {error!r}"


def main() -> None:
    folder, node, site, server = Path(sys.argv[1]), *sys.argv[2:5]
    page = f"{site}/hello.txt"
    visits: dict[str, Callable[[], Any]] = {
        "curl": lambda: output("curl", "-sS", "--max-time", str(LIMIT), page),
        "git": lambda: clone(site, folder),
        "node": lambda: output(node, "-e", FETCH, page),
        "httpx": lambda: httpx.get(page, timeout=LIMIT).text,
        "requests": lambda: requests.get(page, timeout=LIMIT).text,
        "urllib": lambda: open_url(page),
        "sdk": lambda: call_tools(f"{server}/mcp"),
    }
    sys.stdout.write(json.dumps({name: attempt(visit) for name, visit in visits.items()}))


if __name__ == "__main__":
    main()
