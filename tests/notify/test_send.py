"""Notices reach real servers, or fail in a way that tells no secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.proposals import State
from proxy.errors import NotifyError
from proxy.notify.notice import make_notice
from proxy.notify.send import send
from proxy.notify.targets import Secrets, Target
from tests.notify.conftest import Taken
from tests.support.harness import Certificates
from tests.support.proposal_fixture import NOW, new_proposal
from tests.support.timeouts import PATIENCE

NOTICE = make_notice(new_proposal(), State.PENDING, "https://console.example.com/approvals/p1")


def to(taken: Taken, path: str = "/T0/SECRET?x=1") -> tuple[Target, Secrets]:
    url = f"http://127.0.0.1:{taken.port}{path}"
    return Target(kind="webhook", url=url), Secrets(url, b"s3cret")


def test_a_webhook_is_taken(hook: Taken) -> None:
    send(NOTICE, *to(hook), NOW, PATIENCE)
    ((path, headers, body),) = hook.requests
    assert path == "/T0/SECRET?x=1"
    assert headers["interlock-signature"].startswith("v1=")
    assert json.loads(body) == NOTICE


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 404, 500])
def test_any_other_answer_than_a_plain_yes_fails_and_nobody_is_followed(hook: Taken, status: int) -> None:
    hook.answers = [status]
    with pytest.raises(NotifyError, match=f"answered {status}") as failed:
        send(NOTICE, *to(hook), NOW, PATIENCE)
    assert len(hook.requests) == 1
    assert "SECRET" not in str(failed.value)


def test_nobody_there_fails_without_the_address(hook: Taken) -> None:
    target = Target(kind="webhook", url="http://127.0.0.1:1/SECRET")
    with pytest.raises(NotifyError, match="ConnectionRefusedError") as failed:
        send(NOTICE, target, Secrets(target.url, None), NOW)
    assert "SECRET" not in str(failed.value)


def mail_target(taken: Taken, **more: Any) -> Target:
    return Target(kind="email", smtp=f"localhost:{taken.port}", to=("ops@example.com",), **more)


def test_mail_is_sent_over_tls_with_a_login(
    mailbox: Taken, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca_file))
    send(NOTICE, mail_target(mailbox, user="interlock"), Secrets(None, b"pass"), NOW, PATIENCE)
    (text,) = mailbox.mails
    assert "[Interlock] Approval needed: transfer_funds" in text
    assert mailbox.encrypted == [True]
    assert len(mailbox.logins) == 1


def test_a_mail_server_that_nobody_vouches_for_gets_nothing(mailbox: Taken) -> None:
    with pytest.raises(NotifyError, match="SSLCertVerificationError"):
        send(NOTICE, mail_target(mailbox, user="interlock"), Secrets(None, b"pass"), NOW, PATIENCE)
    assert (mailbox.mails, mailbox.logins) == ([], [])


def test_a_mail_server_on_this_machine_may_do_without(mailbox: Taken) -> None:
    send(NOTICE, mail_target(mailbox, tls="off"), Secrets(None, None), NOW, PATIENCE)
    assert mailbox.encrypted == [False]
