"""What the client of one WebSocket has sent, as far as it bears on what comes next. Pure.

A bridge to a line server writes message after message into one pipe, so a call may be cut anywhere over several
messages of which none is a call. Each is therefore judged after what was left unfinished before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from proxy.errors import WireError
from proxy.wire.body import NotMcp, ParsedBody, RefusedBody, SingleMessage, could_be_json, read_lines
from proxy.wire.json_sniff import is_undecided
from proxy.wire.jsonrpc import parse_json

# What servers end messages in a pipe with: lines, and the record separators of RFC 7464 and SignalR.
_SEPARATOR: Final = re.compile(rb"[\n\r\x1e]")
WHOLE: Final = 1 << 16
"""Bytes of an unfinished line that are kept whole; of a longer one its start and its end, which hold every word cut."""
START: Final = 4096
END: Final = 1024


@dataclass(slots=True)
class ClientStream:
    """One WebSocket, seen from its client's side."""

    said: str = ""
    """The end of what passed as text: a secret may be sent in two messages, half of it in each."""
    unfinished: bytes = b""
    """The last line, where it may be the beginning of a message."""
    speaks_mcp: bool = False
    """Whether MCP was spoken. From then on only whole messages pass."""

    def judge(self, reading: ParsedBody, message: bytes) -> ParsedBody:
        """Return what `message`, read by itself as `reading`, is after all that came before it."""
        if isinstance(reading, SingleMessage) and could_be_json(self.unfinished):
            return RefusedBody(
                "not_json", "it follows an unfinished message", reading.message.id, reading.message.method
            )
        if not isinstance(reading, NotMcp):
            return reading
        if self.speaks_mcp:
            return RefusedBody("not_mcp", "this WebSocket speaks MCP, so each message must be MCP")
        if self.unfinished and not isinstance(read_lines(self.unfinished + message), NotMcp):
            return RefusedBody("not_json", "it ends a message that began in another one")
        return reading

    def passed(self, message: bytes) -> None:
        """Note that `message`, which is not MCP by itself, was forwarded."""
        line = _SEPARATOR.split(self.unfinished + message)[-1]
        if not (could_be_json(line) or is_undecided(line)) or _is_whole(line):
            self.unfinished = b""
        elif len(line) > WHOLE:
            self.unfinished = line[:START] + line[-END:]
        else:
            self.unfinished = line


def _is_whole(line: bytes) -> bool:
    if len(line) > WHOLE:
        return False
    try:
        parse_json(line)
    except WireError:
        return False
    return True
