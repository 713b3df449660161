"""Finds the call that fields make: forms, multipart bodies and queries, as PHP and Express read them. Pure."""

from __future__ import annotations

import json
import re
from email.parser import HeaderParser
from typing import Any
from urllib.parse import parse_qsl

from tests.servers.lenient_read import fold

_PART = re.compile(rb'name="([^"]*)"[^\n]*\r?\n(?:[^\r\n]+\r?\n)*\r?\n(.*?)\r?\n--', re.DOTALL)


def fields_of(target: str, body: bytes) -> dict[str, Any]:
    """Return all fields of a request by name, those of the query and of the body together, `a[b]` as a tree."""
    pairs = parse_qsl(target.partition("?")[2], keep_blank_values=True)
    parts = _PART.findall(body)
    pairs += [(name.decode("latin-1"), value.decode("latin-1")) for name, value in parts]
    pairs += [] if parts else parse_qsl(body.decode("latin-1"), keep_blank_values=True, max_num_fields=1000)
    tree: dict[str, Any] = {}
    for key, value in pairs:
        path = [fold(name) for name in re.findall(r"[^\[\]]+", key) if not name.isdigit()]
        branch = tree
        for name in path[:-1]:
            branch = branch.setdefault(name, {}) if isinstance(branch.get(name, {}), dict) else {}
        if path:
            branch[path[-1]] = value
    return tree


def calls_in_fields(target: str, body: bytes) -> list[tuple[str, Any]]:
    """Return the tool calls that the fields make together, and those that stand whole in one, as webhooks have them."""
    return [*_calls_of_fields(target, body), *_calls_in_one(body)]


def _calls_in_one(body: bytes) -> list[tuple[str, Any]]:
    if b"{" in body[:1]:
        return []  # a message that is no form
    pairs = parse_qsl(body.decode("latin-1"), keep_blank_values=True)
    return [call for name, value in pairs for call in _whole_call(value or name)]


def _whole_call(text: str) -> list[tuple[str, Any]]:
    try:
        message = json.loads(text) if text.startswith("{") else None
        if isinstance(message, dict) and message.get("method") == "tools/call":
            return [(message["params"]["name"], message["params"].get("arguments"))]
    except (ValueError, LookupError, TypeError):
        pass
    return []


def _calls_of_fields(target: str, body: bytes) -> list[tuple[str, Any]]:
    try:
        fields = fields_of(target, body)
    except ValueError:  # too many of them
        return []
    params = fields.get("params")
    if fields.get("method") != "tools/call" or not isinstance(params, dict):
        return []
    return [(str(params.get("name")), params.get("arguments"))]


def declared_charset(content_type: str) -> str | None:
    """Return the charset as aiohttp's `request.json()` takes it: as Python's parser of mail does."""
    found = HeaderParser().parsestr(f"Content-Type: {content_type}\n").get_content_charset()
    loose = re.search(r"charset=\"?([\w-]+)", content_type)
    return found or (loose[1] if loose else None)
