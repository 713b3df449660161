"""Sends one notice to one target: HTTP or SMTP, each bounded in time, in a thread of the caller's choice.

Certificates are verified, redirects are not followed, and no environment variable leads elsewhere. What an error says
names the target's kind of failure, never its URL or secret.
"""

from __future__ import annotations

import http.client
import smtplib
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from proxy.errors import NotifyError
from proxy.notify.notice import http_request, mail

if TYPE_CHECKING:
    from proxy.core.model import JsonObject
    from proxy.notify.notice import Request
    from proxy.notify.targets import Secrets, Target

TIMEOUT: Final = 10.0
MAX_ANSWER: Final = 4096


def send(notice: JsonObject, target: Target, secrets: Secrets, now: float, timeout: float = TIMEOUT) -> None:
    """Return once the target has taken the notice. Raises NotifyError where it has not. Blocks."""
    try:
        if target.kind == "email":
            _send_mail(notice, target, secrets, timeout)
        else:
            _post(http_request(notice, target, secrets.secret, now), secrets.url or "", timeout)
    except NotifyError:
        raise
    except (OSError, http.client.HTTPException, smtplib.SMTPException, ValueError) as error:
        # The class alone: some of these texts have the address in them, which may be the secret.
        raise NotifyError(f"{type(error).__name__} while sending") from None


def _post(request: Request, url: str, timeout: float) -> None:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    connection = (
        http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=timeout, context=ssl.create_default_context()
        )
        if secure
        else http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
    )
    path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    try:
        connection.request("POST", path, request.body, request.headers)
        response = connection.getresponse()
        response.read(MAX_ANSWER)
        # A redirect would send the notice, and its signature, to whoever the answer names.
        if not 200 <= response.status < 300:
            raise NotifyError(f"the target answered {response.status}")
    finally:
        connection.close()


def _send_mail(notice: JsonObject, target: Target, secrets: Secrets, timeout: float) -> None:
    host, _, port = (target.smtp or "").rpartition(":")
    context = ssl.create_default_context()
    server: smtplib.SMTP = (
        smtplib.SMTP_SSL(host, int(port), timeout=timeout, context=context)
        if target.tls == "tls"
        else smtplib.SMTP(host, int(port), timeout=timeout)
    )
    with server:
        if target.tls == "starttls":
            server.starttls(context=context)
        if target.user is not None:
            server.login(target.user, (secrets.secret or b"").decode())
        server.send_message(mail(notice, target))
