"""What the client of one WebSocket has sent, as far as it bears on what comes next. Pure.

A bridge to a line server writes message after message into one pipe, so a call may be cut anywhere over several
messages of which none is a call. Each is therefore judged after what was left unfinished before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from proxy.errors import WireError
from proxy.wire.body import NotMcp, ParsedBody, RefusedBody, SingleMessage, could_be_json, read_body, read_lines
from proxy.wire.json_sniff import is_undecided, line_views
from proxy.wire.jsonrpc import parse_json
from proxy.wire.lenient_names import has_message_words

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
    pieces: str = ""
    """The end of the words in it that may be pieces of a secret, put together."""
    unfinished: bytes = b""
    """The last line, where it may be the beginning of a message."""
    is_cut: bool = False
    """Whether the middle of that line is left out."""
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
        if self.unfinished and self._ends_a_message(message):
            # What is cut on purpose goes on: without this, the rest would pass and lack only the piece held back here.
            self.speaks_mcp = True
            return RefusedBody("not_json", "it ends a message that began in another one")
        return reading

    def _ends_a_message(self, message: bytes) -> bool:
        line = self.unfinished + message
        # Without its middle a line cannot be parsed: its words decide.
        if self.is_cut and has_message_words(line.replace(b"\0", b"").decode("utf-8", "replace")):
            return True
        # As a body, too: a message without its end is refused there, since some reader may do without it.
        return not (isinstance(read_lines(line), NotMcp) and isinstance(read_body(line), NotMcp))

    def passed(self, message: bytes) -> None:
        """Note that `message`, which is not MCP by itself, was forwarded."""
        lines = (_SEPARATOR.split(view)[-1] for view in line_views(self.unfinished + message))
        # The first that may go on: it holds what the others begin with.
        line = next((line for line in lines if could_be_json(line) or is_undecided(line)), b"")
        self.is_cut = len(line) > WHOLE
        if self.is_cut:
            self.unfinished = line[:START] + line[-END:]
        else:
            self.unfinished = b"" if _is_whole(line) else line


def _is_whole(line: bytes) -> bool:
    try:
        parse_json(line)
    except WireError:
        return False
    return True
