"""Passkeys (WebAuthn): an operator registers one in the console, and logs in with it from then on."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from proxy.console.security import is_address

if TYPE_CHECKING:
    from proxy.console.operators import Operators
    from proxy.console.passkey_file import PasskeyFile

MAX_PASSKEYS: Final = 10
MAX_LABEL: Final = 64
RP_NAME: Final = "Interlock console"
TIMEOUT_MS: Final = 120_000


class PasskeyError(Exception):
    """A passkey that is not taken, with a sentence that says why."""


@dataclass(frozen=True, slots=True)
class RelyingParty:
    """The console as a browser sees it: the page's origin, and the name that passkeys are bound to."""

    origin: str
    rp_id: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a browser was asked to sign."""

    party: RelyingParty
    challenge: bytes


def relying_party(origin: str) -> RelyingParty | None:
    """Return the relying party of an origin; None where it has an address in place of a name."""
    host = urlsplit(origin).hostname or ""
    return RelyingParty(origin, host) if host and not is_address(host) else None


def creation_options(wanted: Wanted, operator: str, stamp: str, known: list[str]) -> str:
    """Return the options of `navigator.credentials.create`, as JSON."""
    import webauthn  # noqa: PLC0415  large, and for those who use passkeys alone
    from webauthn.helpers import structs  # noqa: PLC0415

    required = structs.UserVerificationRequirement.REQUIRED
    options = webauthn.generate_registration_options(
        rp_id=wanted.party.rp_id,
        rp_name=RP_NAME,
        user_name=operator,
        user_id=_handle(operator, stamp),
        challenge=wanted.challenge,
        timeout=TIMEOUT_MS,
        # Discoverable, so that a login needs no name: it would tell strangers which operators there are.
        authenticator_selection=structs.AuthenticatorSelectionCriteria(
            resident_key=structs.ResidentKeyRequirement.REQUIRED, user_verification=required
        ),
        exclude_credentials=[structs.PublicKeyCredentialDescriptor(id=_decode(one)) for one in known],
    )
    return webauthn.options_to_json(options)


def request_options(wanted: Wanted) -> str:
    """Return the options of `navigator.credentials.get`, as JSON."""
    import webauthn  # noqa: PLC0415
    from webauthn.helpers.structs import UserVerificationRequirement  # noqa: PLC0415

    options = webauthn.generate_authentication_options(
        rp_id=wanted.party.rp_id,
        challenge=wanted.challenge,
        timeout=TIMEOUT_MS,
        user_verification=UserVerificationRequirement.REQUIRED,
    )
    return webauthn.options_to_json(options)


class Passkeys:
    """Registers and verifies. Every method raises ConfigError or OSError where a file cannot be read or written."""

    def __init__(self, file: PasskeyFile, operators: Operators) -> None:
        self._file = file
        self._operators = operators

    def of(self, operator: str) -> dict[str, dict[str, Any]]:
        """Return an operator's passkeys by id."""
        stamp = self._operators.stamp(operator)
        return {} if stamp is None else self._file.of(operator, stamp)

    def stamp(self, operator: str) -> str:
        """Return the stamp of an operator of the state folder. Raises PasskeyError where there is none of that name."""
        stamp = self._operators.stamp(operator)
        if stamp is None:
            raise PasskeyError("Passkeys are for operators of this state folder.")
        return stamp

    def register(self, credential: str, wanted: Wanted, operator: str, label: str) -> str:
        """Keep a new passkey of an operator; return its id. Raises PasskeyError where it is not what was asked for."""
        stamp = self.stamp(operator)
        verified = _verify_registration(_parse(credential, "webauthn.create"), wanted)
        with self._file.update() as entries:
            key = _encode(verified.credential_id)
            own = [one for one in entries.values() if (one["operator"], one["stamp"]) == (operator, stamp)]
            if key in entries:
                raise PasskeyError("This passkey is registered already.")
            if len(own) >= MAX_PASSKEYS:
                raise PasskeyError(f"You have {MAX_PASSKEYS} passkeys. Remove one first.")
            entries[key] = {
                "operator": operator,
                "stamp": stamp,
                "label": _label(label),
                "rp_id": wanted.party.rp_id,
                "public_key": _encode(verified.credential_public_key),
                "count": verified.sign_count,
                "added": time.time(),
            }
        return key

    def remove(self, operator: str, key: str) -> None:
        """Forget one passkey of an operator. Raises PasskeyError where the operator has none of that id."""
        stamp = self.stamp(operator)
        with self._file.update() as entries:
            one = entries.get(key)
            if one is None or (one["operator"], one["stamp"]) != (operator, stamp):
                raise PasskeyError("You have no such passkey.")
            del entries[key]

    def log_in(self, credential: str, wanted: Wanted) -> str:
        """Return the operator whose passkey signed the challenge. Raises PasskeyError for any other credential."""
        given = _parse(credential, "webauthn.get")
        # Verified with the file locked: of two answers with one counter, the second is a replay.
        with self._file.update() as entries:
            one = entries.get(str(given.get("id")))
            if one is None or one["rp_id"] != wanted.party.rp_id:
                raise PasskeyError("This passkey is not known here.")
            operator = str(one["operator"])
            if self._operators.stamp(operator) != one["stamp"]:
                raise PasskeyError("The operator of this passkey was revoked.")
            _check_handle(given, operator, one["stamp"])
            one["count"] = _verify_login(given, wanted, one)
        return operator


def _verify_registration(given: dict[str, Any], wanted: Wanted) -> Any:
    import webauthn  # noqa: PLC0415

    try:
        return webauthn.verify_registration_response(
            credential=given,
            expected_challenge=wanted.challenge,
            expected_rp_id=wanted.party.rp_id,
            expected_origin=wanted.party.origin,
            require_user_verification=True,
        )
    except Exception as error:
        # Whatever a stranger's bytes make the library raise: the passkey is refused.
        raise PasskeyError("This passkey was not accepted.") from error


def _verify_login(given: dict[str, Any], wanted: Wanted, one: dict[str, Any]) -> int:
    """Return the new count of signatures."""
    import webauthn  # noqa: PLC0415

    try:
        verified = webauthn.verify_authentication_response(
            credential=given,
            expected_challenge=wanted.challenge,
            expected_rp_id=wanted.party.rp_id,
            expected_origin=wanted.party.origin,
            credential_public_key=_decode(one["public_key"]),
            credential_current_sign_count=one["count"],
            require_user_verification=True,
        )
    except Exception as error:
        raise PasskeyError("This passkey was not accepted.") from error
    return verified.new_sign_count


def _parse(credential: str, kind: str) -> dict[str, Any]:
    """Return a credential as the browser sent it. Raises PasskeyError for one of another page or purpose."""
    try:
        given = json.loads(credential)
        client = json.loads(_decode(given["response"]["clientDataJSON"]))
        plain = given["id"] == given["rawId"] == _encode(_decode(given["id"])) and client["type"] == kind
        # The library leaves these alone: a page in a frame of another site is not ours.
        framed = client.get("crossOrigin", False) is not False or "topOrigin" in client
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise PasskeyError("The browser's answer cannot be read.") from error
    if not plain or framed:
        raise PasskeyError("The browser's answer is not what was asked for.")
    return dict(given)


def _check_handle(given: dict[str, Any], operator: str, stamp: str) -> None:
    handle = given["response"].get("userHandle")
    if not isinstance(handle, str) or not hmac.compare_digest(
        handle.encode(), _encode(_handle(operator, stamp)).encode()
    ):
        raise PasskeyError("This passkey is of another operator.")


def _handle(operator: str, stamp: str) -> bytes:
    return hashlib.sha256(f"{operator}\0{stamp}".encode()).digest()


def _label(text: str) -> str:
    return " ".join(text.split())[:MAX_LABEL] or "Passkey"


def _encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
