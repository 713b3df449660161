"""What anybody would write first, for `mitmdump -s`: deny tools by name, write a line for each call. The yardstick.

It parses loosely, fails open, looks at no arguments and no results, masks nothing and syncs nothing to disk.
"""

import json
import os

from mitmproxy import http

DENIED = {"shell", "delete_file", "transfer_funds"}
LOG = open(os.environ["NAIVE_LOG"], "a", encoding="utf-8")  # noqa: SIM115, PTH123


def request(flow: http.HTTPFlow) -> None:
    try:
        message = json.loads(flow.request.content or b"null")
    except ValueError:
        return
    if isinstance(message, dict) and message.get("method") == "tools/call":
        tool = message["params"]["name"]
        LOG.write(json.dumps({"tool": tool, "arguments": message["params"].get("arguments")}) + "\n")
        if tool in DENIED:
            error = {"code": -32000, "message": f"{tool} is denied"}
            answer = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": error})
            flow.response = http.Response.make(200, answer, {"Content-Type": "application/json"})
