"""A stand-in for the models of MCP clients: it asks for one tool once, and keeps what it is told of the result.

It speaks the four APIs that the clients of scripts/clients.py use, as far as they need it, on loopback only.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

TOOL = "echo"
ARGUMENTS = {"text": "Plan"}
WAIT = "WaitForMcpServers"  # Claude Code's own tool: its servers may not have started yet
PATIENCE = 20
SAID = "done."
type Body = dict[str, Any]


def _find(names: list[str]) -> str | None:
    return next((name for name in names if name == TOOL or name.endswith(f"_{TOOL}")), None)


def anthropic(body: Body) -> list[Body]:
    """Return the events of Anthropic's messages API."""
    names, before = [tool["name"] for tool in body.get("tools", [])], json.dumps(body.get("messages", []))
    tool = _find(names) if '"call_tool"' not in before else None
    block: Body = {"type": "text", "text": ""}
    delta: Body = {"type": "text_delta", "text": SAID}
    waited = before.count(f'"name": "{WAIT}"')
    if tool or (WAIT in names and '"call_tool"' not in before and waited < PATIENCE):
        call = "call_tool" if tool else f"call_wait_{waited}"
        block = {"type": "tool_use", "id": call, "name": tool or WAIT, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(ARGUMENTS if tool else {})}
    stop = "tool_use" if block["type"] == "tool_use" else "end_turn"
    message = {"id": "m", "type": "message", "role": "assistant", "model": body.get("model"), "content": []}
    usage = {"input_tokens": 1, "output_tokens": 1}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage},
        {"type": "message_stop"},
    ]


def responses(body: Body) -> list[Body]:
    """Return the events of OpenAI's responses API."""
    spaces = {space.get("name"): space.get("tools") or [] for space in body.get("tools", [])}
    inside = [(space, tool.get("name", "")) for space, tools in spaces.items() for tool in tools]
    space, tool = next(((s, name) for s, name in inside if _find([name])), (None, _find(list(filter(None, spaces)))))
    item: Body = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    item["content"] = [{"type": "output_text", "text": SAID, "annotations": []}]
    if tool and not any(each.get("type") == "function_call_output" for each in body.get("input", [])):
        item = {"type": "function_call", "id": "f", "call_id": "call_tool", "name": tool, "status": "completed"}
        item |= {"arguments": json.dumps(ARGUMENTS)} | ({"namespace": space} if space else {})
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    usage_details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    done = {"id": "r", "object": "response", "status": "completed", "output": [item], "usage": usage | usage_details}
    return [
        {"type": "response.created", "response": {"id": "r", "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ]


def gemini(body: Body) -> list[Body]:
    """Return the events of Gemini's streamGenerateContent."""
    names = [function["name"] for tool in body.get("tools", []) for function in tool.get("functionDeclarations", [])]
    tool = _find(names) if "functionResponse" not in json.dumps(body.get("contents", [])) else None
    part = {"functionCall": {"name": tool, "args": ARGUMENTS}} if tool else {"text": SAID}
    content = {"role": "model", "parts": [part]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return [{"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}]


def chat(body: Body) -> list[Body]:
    """Return the chunks of OpenAI's chat completions API."""
    tool = _find([tool["function"]["name"] for tool in body.get("tools", [])])
    delta: Body = {"role": "assistant", "content": SAID}
    if tool and not any(message["role"] == "tool" for message in body.get("messages", [])):
        function = {"name": tool, "arguments": json.dumps(ARGUMENTS)}
        call = {"index": 0, "id": "call_tool", "type": "function", "function": function}
        delta = {"role": "assistant", "content": None, "tool_calls": [call]}
    stop = "tool_calls" if "tool_calls" in delta else "stop"
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": body.get("model")}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return [
        chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": stop}], "usage": usage},
    ]


APIS = {"/messages": anthropic, "/responses": responses, "enerateContent": gemini, "/chat/completions": chat}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer("application/json", b'{"data": [], "models": []}')

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        api = next((api for end, api in APIS.items() if end in self.path and "count" not in self.path), None)
        if api is None:
            self._answer("application/json", b'{"input_tokens": 1}')
            return
        assert isinstance(self.server, StandInModel)
        self.server.told.append(sent.decode())
        events = api(json.loads(sent))
        named = (f"event: {event['type']}\n" if "type" in event else "" for event in events)
        lines = [f"{name}data: {json.dumps(event)}\n\n" for name, event in zip(named, events, strict=True)]
        end = "data: [DONE]\n\n" if api is chat else ""
        self._answer("text/event-stream", "".join([*lines, end]).encode())

    def _answer(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class StandInModel(ThreadingHTTPServer):
    """Serves the APIs until the block ends. `told` has every request, and so what became of the tool call."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.told: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
