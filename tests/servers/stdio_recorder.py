"""A stdio server that notes every byte it gets and answers whatever it can read.

`stdio_recorder.py LOG [FLAG…]`. Flags: `--ignore-term` (SIGTERM does nothing), `--stay` (does not end with
stdin), `--child PIDFILE` (starts a process that leaves its session, and notes its number), `--exit N`.
Requests with these methods do more than answer: `tools/call` of `crash`, `signal`, `say`, `secret`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TOOLS = [
    {"name": name, "description": f"The tool {name}.", "inputSchema": {"type": "object"}}
    for name in ("echo", "danger", "say", "secret", "crash")
]


def write(value: Any) -> None:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode() + b"\n"
    sys.stdout.buffer.write(raw)
    sys.stdout.buffer.flush()


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "crash":
        os._exit(int(arguments["code"]))
    if name == "signal":
        os.kill(os.getpid(), int(arguments["number"]))
    if name == "say":
        write(arguments["raw"].encode("latin-1"))
    if name == "slow":
        time.sleep(arguments["seconds"])
    text = arguments.get("text", "done")
    return {"content": [{"type": "text", "text": text}], "structuredContent": {"text": text}}


def answer(message: dict[str, Any]) -> None:
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message or method is None:
        return
    result: dict[str, Any] = {}
    if method == "initialize":
        result = {"protocolVersion": params.get("protocolVersion"), "capabilities": {"tools": {}}, "serverInfo": {}}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        result = call(params["name"], params.get("arguments") or {})
    elif method == "subscriptions/listen":
        meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
        write({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {"_meta": meta}})
        return
    write({"jsonrpc": "2.0", "id": message["id"], "result": result})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("log", type=Path)
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--stay", action="store_true")
    parser.add_argument("--child", type=Path)
    parser.add_argument("--exit", type=int, default=0)
    options = parser.parse_args()
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.child:
        child = subprocess.Popen(["sleep", "300"], start_new_session=True)
        options.child.write_text(f"{os.getpid()} {child.pid}\n")
    with options.log.open("ab", buffering=0) as log:
        while data := sys.stdin.buffer.readline():
            log.write(data)
            try:
                answer(json.loads(data))
            except (ValueError, KeyError, AttributeError):
                continue
    while options.stay:
        time.sleep(60)
    sys.exit(options.exit)


if __name__ == "__main__":
    main()
