"""Draw the pictures of the documentation into docs/pictures/. `--check` says whether they are current."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
# An opaque light panel with dark text reads well on a light and on a dark page.
COLOURS = {
    "ours": ("#e8eaf6", "#3949ab"),
    "theirs": ("#ffffff", "#78909c"),
    "disk": ("#e0f2f1", "#00897b"),
    "person": ("#fff3e0", "#ef6c00"),
}
STYLE = (
    "text{font:14px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#1a1f2b}"
    ".small{font-size:12px;fill:#45505f}.title{font-weight:600}"
    ".line{stroke:#45505f;stroke-width:1.5;fill:none}.dashed{stroke-dasharray:5 4}"
)


@dataclass
class Picture:
    """A drawing of boxes and arrows, by absolute coordinates."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def box(self, x: int, y: int, width: int, height: int, kind: str, *lines: str) -> None:
        """Draw a box; its first line is its title."""
        fill, stroke = COLOURS[kind]
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="1.5"/>'
        )
        top = y + height / 2 - 9 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            style = "title" if number == 0 else "small"
            self.text(x + width / 2, top + 18 * number, line, style, "middle")

    def frame(self, x: int, y: int, width: int, height: int, title: str, kind: str = "ours") -> None:
        """Draw a box around others, with its title at the top."""
        fill, stroke = COLOURS[kind]
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" fill="{fill}" fill-opacity="0.45" '
            f'stroke="{stroke}" stroke-width="1.5"/>'
        )
        self.text(x + 14, y + 22, title, "title")

    def text(self, x: float, y: float, line: str, style: str = "", anchor: str = "start") -> None:
        """Write one line."""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{style}" text-anchor="{anchor}">{escape(line)}</text>')

    def arrow(self, *points: tuple[int, int], label: str = "", dashed: bool = False, both: bool = False) -> None:
        """Draw an arrow through points; the label stands above the middle of its first stretch."""
        path = " ".join(f"{'L' if number else 'M'}{x} {y}" for number, (x, y) in enumerate(points))
        start = ' marker-start="url(#head)"' if both else ""
        style = "line dashed" if dashed else "line"
        self.parts.append(f'<path d="{path}" class="{style}" marker-end="url(#head)"{start}/>')
        if label:
            (x1, y1), (x2, y2) = points[:2]
            if x1 == x2:
                self.text(x1 + 8, (y1 + y2) / 2 + 4, label, "small")
            else:
                self.text((x1 + x2) / 2, (y1 + y2) / 2 - 7, label, "small", "middle")

    def svg(self) -> str:
        """Return the file's text."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img">\n'
            f"<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n"
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" fill="#45505f"/></marker></defs>\n'
            f'<rect width="{self.width}" height="{self.height}" rx="12" fill="#fafbfd" stroke="#cfd8dc"/>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"


def overview() -> Picture:
    """Return the picture of the README: who talks to whom."""
    p = Picture(960, 470, "Agents reach MCP servers through Interlock, which decides and records each call")
    p.box(24, 70, 170, 70, "theirs", "Agent", "HTTPS_PROXY, reverse", "or transparent")
    p.box(24, 230, 170, 70, "theirs", "MCP client", "Claude Code, Cursor,", "VS Code …")
    p.frame(300, 40, 360, 290, "Interlock")
    p.box(320, 76, 320, 56, "ours", "interlock up", "reads the calls inside TLS")
    p.box(320, 237, 320, 56, "ours", "interlock run", "starts one local server, watches it with strace")
    p.box(320, 152, 72, 62, "ours", "parse", "strictly")
    p.box(402, 152, 72, 62, "ours", "decide", "by rules")
    p.box(484, 152, 72, 62, "ours", "redact", "secrets")
    p.box(566, 152, 74, 62, "ours", "record", "on disk")
    for x in (392, 474, 556):
        p.arrow((x, 183), (x + 10, 183))
    p.text(480, 317, "the same gate and policy for both", "small", "middle")
    p.box(766, 70, 170, 70, "theirs", "MCP server", "HTTP, SSE,", "WebSocket")
    p.box(766, 230, 170, 70, "theirs", "Local MCP server", "npx, uvx, docker …")
    p.arrow((194, 104), (320, 104), label="TLS", both=True)
    p.arrow((640, 104), (766, 104), label="TLS", both=True)
    p.arrow((194, 265), (320, 265), label="stdio", both=True)
    p.arrow((640, 265), (766, 265), label="stdio", both=True)
    p.box(24, 385, 210, 62, "person", "Approver", "interlock proposals approve")
    p.box(375, 385, 210, 62, "disk", "Local audit log", "durable before forwarding")
    p.box(726, 385, 210, 62, "disk", "Postgres or SQLite", "events, proposals, nonces")
    p.arrow((129, 385), (129, 345), (340, 345), (340, 330))
    p.text(150, 338, "approves two-phase calls", "small")
    p.arrow((480, 330), (480, 385), label="every call")
    p.arrow((585, 416), (726, 416), label="shipper")
    return p


def processes() -> Picture:
    """Return the picture of the processes of one machine."""
    p = Picture(960, 560, "The supervisor forks workers; each has a log and a shipper of its own")
    p.box(24, 200, 130, 70, "theirs", "Agents", "one port for all", "(SO_REUSEPORT)")
    p.frame(210, 24, 500, 380, "interlock up")
    p.box(230, 60, 460, 66, "ours", "Supervisor", "loads policy and keys, forks and replaces workers; forwards nothing")
    p.frame(230, 150, 460, 100, "Worker 1")
    p.box(246, 184, 132, 52, "ours", "gate", "mitmproxy, one loop")
    p.box(394, 184, 132, 52, "ours", "log writer", "thread, fsync")
    p.box(542, 184, 132, 52, "ours", "shipper", "thread")
    p.frame(230, 270, 460, 100, "Worker N")
    p.box(246, 304, 132, 52, "ours", "gate", "mitmproxy, one loop")
    p.box(394, 304, 132, 52, "ours", "log writer", "thread, fsync")
    p.box(542, 304, 132, 52, "ours", "shipper", "thread")
    for y in (210, 330):
        p.arrow((378, y), (394, y))
        p.arrow((526, y), (542, y))
    p.arrow((154, 222), (246, 212), both=True)
    p.arrow((154, 248), (246, 328), both=True)
    p.text(230, 393, "Workers share calls in flight through a SQLite file in the state folder", "small")
    p.box(24, 60, 130, 66, "theirs", "Monitoring", "/healthz /readyz", "/metrics")
    p.arrow((154, 93), (230, 93))
    p.box(766, 150, 170, 70, "disk", "Local logs", "events.db, events-2.db …", "one for each writer")
    p.box(766, 290, 170, 80, "disk", "Store", "store/interlock.db", "or Postgres, shared", "by all replicas")
    p.arrow((690, 190), (766, 185), both=True)
    p.arrow((690, 225), (766, 312))
    p.arrow((690, 330), (766, 335))
    p.box(766, 60, 170, 56, "person", "Operators", "operator.sock")
    p.arrow((766, 88), (728, 88), (728, 168), (690, 168))
    p.box(24, 460, 130, 66, "theirs", "MCP client")
    p.frame(210, 424, 500, 116, "interlock run (one for each local server)")
    p.box(246, 462, 132, 62, "ours", "gate", "log writer", "and shipper")
    p.box(394, 462, 132, 62, "ours", "process reaper", "ends all that the", "server started")
    p.box(542, 462, 132, 62, "theirs", "local server", "under strace,", "where it works")
    p.arrow((154, 493), (246, 493), both=True)
    p.text(182, 486, "stdio", "small", "middle")
    p.arrow((378, 493), (394, 493))
    p.arrow((526, 493), (542, 493))
    p.arrow((312, 524), (312, 550), (851, 550), (851, 370))
    p.text(724, 542, "run-1.db, then the store", "small")
    return p


def audit() -> Picture:
    """Return the picture of an event's path."""
    p = Picture(960, 330, "An event goes from the gate to the local log, the store and the commands that read it")
    p.box(24, 60, 140, 76, "ours", "Gate", "decides; the call", "waits for the event")
    p.box(224, 60, 170, 76, "disk", "Local log", "SQLite, fsync,", "hash chain per writer")
    p.box(454, 60, 140, 76, "ours", "Shipper", "moves batches,", "retries for ever")
    p.box(654, 60, 150, 76, "disk", "Store", "SQLite file", "or Postgres")
    p.arrow((164, 98), (224, 98), label="event")
    p.arrow((394, 98), (454, 98))
    p.arrow((594, 98), (654, 98), label="commit")
    p.arrow((524, 60), (524, 34), (309, 34), (309, 60), dashed=True)
    p.text(416, 28, "delete after the store has committed", "small", "middle")
    p.box(24, 220, 140, 76, "theirs", "MCP server", "gets the call after", "the event is on disk")
    p.arrow((94, 136), (94, 220), label="forward")
    p.box(224, 220, 170, 76, "disk", "Checkpoints", "Ed25519 signatures", "outside the database")
    p.arrow((309, 136), (309, 220), label="sign")
    p.box(449, 220, 155, 76, "disk", "Another machine", "checkpoint_command")
    p.arrow((394, 258), (449, 258), label="send")
    p.box(
        654,
        220,
        282,
        76,
        "person",
        "interlock audit",
        "query, show, stats, export",
        "verify: chain, checkpoints and columns",
    )
    p.arrow((729, 136), (729, 220), label="read")
    p.arrow((604, 258), (654, 258))
    p.arrow((370, 136), (370, 178), (690, 178), (690, 220), dashed=True)
    p.text(530, 172, "what is not shipped yet", "small", "middle")
    return p


def two_phase() -> Picture:
    """Return the sequence of a proposal, its approval and its commit."""
    p = Picture(960, 640, "Propose, approve, commit: the server sees one ordinary call")
    lanes = {"Agent": 100, "Interlock": 370, "Approver": 620, "MCP server": 850}
    kinds = {"Agent": "theirs", "Interlock": "ours", "Approver": "person", "MCP server": "theirs"}
    for name, x in lanes.items():
        p.parts.append(f'<path d="M{x} 66 L{x} 616" class="line dashed" stroke-opacity="0.5"/>')
        p.box(x - 70, 24, 140, 42, kinds[name], name)
    agent, gate, person, server = lanes.values()

    def note(y: int, *lines: str) -> None:
        p.box(gate - 100, y, 200, 22 + 18 * (len(lines) - 1) + 8, "ours", *lines)

    p.arrow((agent, 100), (gate, 100), label="transfer_funds_propose(args)")
    note(112, "decide, score, store", "hash of the arguments")
    p.arrow((gate, 190), (agent, 190), label="pending: a person must approve")
    p.arrow((person, 226), (gate, 226), label="interlock proposals approve ID")
    note(238, "record, then approve")
    p.arrow((agent, 306), (gate, 306), label="the same proposal again")
    p.arrow((gate, 340), (agent, 340), label="allowed: commit_token")
    p.arrow((agent, 390), (gate, 390), label="transfer_funds_commit(args, token)")
    note(402, "check, decide, record", "token, arguments, policy;", "then the nonce is used up")
    p.arrow((gate, 496), (server, 496), label="transfer_funds(args), without the token")
    p.arrow((server, 530), (gate, 530), label="result")
    p.arrow((gate, 560), (agent, 560), label="result, masked")
    p.arrow((agent, 600), (gate, 600), label="the same token again")
    p.text(gate + 12, 604, "nonce_replay: refused", "small")
    return p


PICTURES = {"overview": overview, "processes": processes, "audit": audit, "two-phase": two_phase}


def main(words: list[str]) -> int:
    """Write the pictures, or with `--check` return 1 where one is not current."""
    drawn = {FOLDER / f"{name}.svg": draw().svg() for name, draw in PICTURES.items()}
    if "--check" in words:
        return int(any(not path.exists() or path.read_text() != text for path, text in drawn.items()))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in drawn.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
