"""What a notice says, and how each kind of target wants to be told. Pure, no I/O.

A notice holds masked arguments only, and no credential: its link opens for nobody without an operator's own login.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from email.message import EmailMessage
from typing import TYPE_CHECKING, Final

from proxy.core.proposals import State

if TYPE_CHECKING:
    from proxy.core.model import JsonObject
    from proxy.core.proposals import Proposal
    from proxy.notify.targets import Target

# Most chat services take about 3,000 characters of text; what does not fit is seen in the console.
MAX_ARGUMENTS: Final = 1500
MAX_NAME: Final = 120
TOLD: Final = (State.PENDING, State.APPROVED, State.REJECTED, State.EXPIRED)
_ENDED: Final = {State.APPROVED: "was approved", State.REJECTED: "was rejected", State.EXPIRED: "expired"}


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request that carries a notice."""

    body: bytes
    headers: dict[str, str]


def make_notice(proposal: Proposal, state: State, page: str | None) -> JsonObject:
    """Return what is told of a proposal in a state."""
    return {
        "event": f"proposal.{state}",
        "proposal_id": proposal.proposal_id,
        "state": str(state),
        "agent": _name(proposal.principal),
        "server": _name(proposal.server),
        "tool": _name(proposal.tool),
        "rule": _name(proposal.rule),
        "arguments": _arguments(proposal),
        "composite_score": proposal.composite_score,
        "people": proposal.people,
        "approvals": proposal.approvals,
        "created_at": proposal.created_at,
        "expires_at": proposal.expires_at,
        "operator": proposal.operator,
        "page": page,
    }


def title_of(notice: JsonObject) -> str:
    call = f"{notice['tool']} of {notice['server']} for {notice['agent']}"
    if notice["state"] == State.PENDING:
        return f"Approval needed: {call}"
    by = f" by {notice['operator']}" if notice["operator"] and notice["state"] != State.EXPIRED else ""
    return f"{call} {_ENDED[State(notice['state'])]}{by}"


def text_of(notice: JsonObject) -> str:
    lines = [f"Rule {notice['rule']}, proposal {notice['proposal_id']}."]
    if notice["people"] > 1:
        lines.append(f"{notice['approvals']} of {notice['people']} people have approved.")
    lines.append(f"Arguments (masked): {notice['arguments']}")
    if notice["page"]:
        lines.append(f"Decide: {notice['page']}")
    else:
        lines.append(f"Decide: interlock proposals show {notice['proposal_id']}")
    return "\n".join(lines)


def http_request(notice: JsonObject, target: Target, secret: bytes | None, now: float) -> Request:
    """Return the request that tells a target of an HTTP kind; signed where there is a secret to sign with."""
    if target.kind == "ntfy":
        # As JSON, not in headers: those are Latin-1 without line breaks, and names may hold anything.
        topic = {"topic": target.topic, "title": title_of(notice), "message": text_of(notice)}
        topic |= {"click": notice["page"]} if notice["page"] else {}
        return Request(json.dumps(topic).encode(), _headers({} if secret is None else _bearer(secret)))
    shapes = {"slack": _slack, "teams": _teams}
    body = json.dumps(shapes[target.kind](notice) if target.kind in shapes else notice).encode()
    signed = sign(body, secret, now) if target.kind == "webhook" and secret is not None else {}
    return Request(body, _headers(signed))


def sign(body: bytes, secret: bytes, now: float) -> dict[str, str]:
    """Return the headers that prove who sent `body`, and when: an HMAC over the time and the body."""
    stamp = str(int(now))
    mac = hmac.new(secret, f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    return {"Interlock-Timestamp": stamp, "Interlock-Signature": f"v1={mac}"}


def mail(notice: JsonObject, target: Target) -> EmailMessage:
    message = EmailMessage()
    # One line each: a line break in a tool's name must not become a header of its own.
    message["Subject"] = " ".join(f"[Interlock] {title_of(notice)}".split())
    message["From"] = target.sender
    message["To"] = ", ".join(target.to)
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(f"{title_of(notice)}\n\n{text_of(notice)}\n")
    return message


def _slack(notice: JsonObject) -> JsonObject:
    text = f"*{_escaped(title_of(notice))}*\n{_escaped(text_of(notice))}"
    section = {"type": "section", "text": {"type": "mrkdwn", "text": text}}
    return {"text": title_of(notice), "blocks": [section]}


def _teams(notice: JsonObject) -> JsonObject:
    blocks: list[JsonObject] = [
        {"type": "TextBlock", "text": title_of(notice), "weight": "Bolder", "wrap": True},
        {"type": "TextBlock", "text": text_of(notice), "wrap": True, "fontType": "Monospace"},
    ]
    card: JsonObject = {"type": "AdaptiveCard", "version": "1.4", "body": blocks}
    if notice["page"]:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open", "url": notice["page"]}]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def _escaped(text: str) -> str:
    # In Slack's text these three begin mentions and links: an argument must not call everybody, or hide an address.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _headers(more: dict[str, str]) -> dict[str, str]:
    return {"Content-Type": "application/json", "User-Agent": "interlock", **more}


def _bearer(secret: bytes) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret.decode('ascii', 'ignore')}"}


def _arguments(proposal: Proposal) -> str:
    text = json.dumps(proposal.arguments)
    return text if len(text) <= MAX_ARGUMENTS else f"{text[:MAX_ARGUMENTS]}… ({len(text)} characters)"


def _name(text: str) -> str:
    """Return a name that came over the wire, bounded and in one line."""
    return "".join(c if c.isprintable() else "�" for c in text[:MAX_NAME])
