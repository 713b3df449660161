"""Asks a cluster's API server about a service account's token: whether its pod and account still exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxy.identity.issuer_http import UnreachableError, UnreadableAnswerError, ask_json
from proxy.identity.jwt import TokenError

if TYPE_CHECKING:
    from proxy.identity.settings import KubernetesProvider

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"


def bearer_for(provider: KubernetesProvider, address: str) -> dict[str, str]:
    """Return the header with the proxy's own token, read anew: the kubelet replaces it every hour.

    Only for the API server itself: an issuer elsewhere must not see a token that counts in the cluster.
    """
    if provider.token_file is None or not address.startswith(provider.api.rstrip("/") + "/"):
        return {}
    try:
        return {"Authorization": f"Bearer {provider.token_file.read_text().strip()}"}
    except (OSError, UnicodeDecodeError):
        return {}


async def review(token: str, provider: KubernetesProvider, subject: str) -> None:
    """Raise TokenError unless the API server says that a token is valid, for us, and of `subject`."""
    spec = {"token": token, "audiences": list(provider.audience)}
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    address = provider.api.rstrip("/") + PATH
    headers = bearer_for(provider, address)
    try:
        status, answer = await ask_json(address, "POST", body=asked, headers=headers, ca_file=provider.ca_file)
    except (UnreachableError, UnreadableAnswerError) as error:
        raise TokenError("issuer_unavailable", "the cluster cannot be asked about it") from error
    if status not in (200, 201):
        raise TokenError("issuer_unavailable", f"the cluster answered with status {status}")
    if not _is_confirmed(answer, provider, subject):
        raise TokenError("token_revoked", "the cluster does not take it any more")


def _is_confirmed(answer: Any, provider: KubernetesProvider, subject: str) -> bool:
    said = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(said, dict) or said.get("authenticated") is not True or said.get("error"):
        return False
    user, audiences = said.get("user"), said.get("audiences")
    # A server that knows nothing of audiences leaves them out: its yes is then for somebody else, maybe.
    meant = isinstance(audiences, list) and any(one in provider.audience for one in audiences)
    return meant and isinstance(user, dict) and user.get("username") == subject
