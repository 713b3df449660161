"""What a notice says, to each kind of target."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest

from proxy.core.proposals import State
from proxy.notify.notice import MAX_ARGUMENTS, http_request, mail, make_notice, sign, text_of, title_of
from proxy.notify.targets import Target
from tests.support.proposal_fixture import NOW, new_proposal

PAGE = "https://console.example.com/approvals/p1"
HOSTILE = "pay\r\nBcc: eve@example.com\n<!channel> \u202e\x1b[31m"


def target(kind: str, **more: Any) -> Target:
    if kind == "email":
        return Target(kind="email", smtp="127.0.0.1:25", to=("ops@example.com",), tls="off", **more)
    return Target.model_validate({"kind": kind, "url": "https://x.example.com/", "topic": "ops", **more})


def test_it_says_who_what_and_where_and_holds_nothing_of_a_token() -> None:
    proposal = new_proposal(people=2, approvals=1)
    notice = make_notice(proposal, State.PENDING, PAGE)
    assert title_of(notice) == "Approval needed: transfer_funds of bank.example.com for bot"
    assert "1 of 2 people have approved." in text_of(notice)
    assert f"Decide: {PAGE}" in text_of(notice)
    for secret in (proposal.nonce, proposal.arguments_hash):
        assert secret not in json.dumps(notice)
    assert "interlock proposals show" in text_of(make_notice(proposal, State.PENDING, None))


@pytest.mark.parametrize(
    ("state", "end"),
    [(State.APPROVED, "was approved by ann"), (State.REJECTED, "was rejected by ann"), (State.EXPIRED, "expired")],
)
def test_the_end_says_who_ended_it(state: State, end: str) -> None:
    notice = make_notice(new_proposal(state=state, operator="ann"), state, PAGE)
    assert title_of(notice) == f"transfer_funds of bank.example.com for bot {end}"


def test_large_arguments_are_cut() -> None:
    notice = make_notice(new_proposal(arguments={"x": "y" * 9999}), State.PENDING, PAGE)
    assert len(notice["arguments"]) < MAX_ARGUMENTS + 50
    assert "(10008 characters)" in notice["arguments"]


@pytest.mark.parametrize("kind", ["webhook", "slack", "teams", "ntfy"])
def test_a_hostile_name_stays_text(kind: str) -> None:
    notice = make_notice(new_proposal(tool=HOSTILE), State.PENDING, PAGE)
    request = http_request(notice, target(kind), None, NOW)
    body = json.loads(request.body)
    assert all("\n" not in value and value.isascii() for value in request.headers.values())
    if kind == "slack":
        assert "<!channel>" not in body["blocks"][0]["text"]["text"]
    assert "\\u001b" not in request.body.decode()
    assert "\\u202e" not in request.body.decode()


def test_a_hostile_name_makes_no_header_of_a_mail() -> None:
    message = mail(make_notice(new_proposal(tool=HOSTILE), State.PENDING, PAGE), target("email"))
    assert message["Bcc"] is None
    assert "\n" not in message["Subject"]


def test_a_webhook_is_signed_over_its_time_and_body() -> None:
    request = http_request(make_notice(new_proposal(), State.PENDING, PAGE), target("webhook"), b"s3cret", NOW)
    stamp = request.headers["Interlock-Timestamp"]
    expected = hmac.new(b"s3cret", stamp.encode() + b"." + request.body, hashlib.sha256).hexdigest()
    assert request.headers["Interlock-Signature"] == f"v1={expected}"
    assert stamp == str(int(NOW))
    assert sign(request.body, b"other", NOW) != sign(request.body, b"s3cret", NOW)


def test_each_kind_has_its_shape() -> None:
    notice = make_notice(new_proposal(), State.PENDING, PAGE)
    shapes = {
        kind: json.loads(http_request(notice, target(kind), None, NOW).body) for kind in ("slack", "teams", "ntfy")
    }
    assert shapes["slack"]["blocks"][0]["text"]["type"] == "mrkdwn"
    card = shapes["teams"]["attachments"][0]["content"]
    assert (card["type"], card["actions"][0]["url"]) == ("AdaptiveCard", PAGE)
    assert (shapes["ntfy"]["topic"], shapes["ntfy"]["click"]) == ("ops", PAGE)
    token = http_request(notice, target("ntfy"), b"tk_1", NOW).headers["Authorization"]
    assert token == "Bearer tk_1"
