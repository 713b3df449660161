"""An MCP server that answers as AgentDojo's tools did: the runs that `record` wrote, one after the other.

    python -m bench.agentdojo.server RUNS.jsonl PORT

A call is answered with the next recorded result of its run, which its path names: /mcp/NUMBER.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.agentdojo.replay import as_result


def main() -> None:
    """Serve until killed."""
    runs = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    steps = {str(number): [*run["steps"], *run.get("injected", ())] for number, run in enumerate(runs)}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            number = self.path.rpartition("/")[2]
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            wanted = message["params"]["name"], message["params"]["arguments"]
            step = next(step for step in steps[number] if (step["tool"], step["arguments"]) == wanted)
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": as_result(step)}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()


if __name__ == "__main__":
    main()
