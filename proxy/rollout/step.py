"""One step of the roll-out: which versions are in force, and for whom. Its body is signed as a whole. Pure, no I/O.

A step says everything: whoever knows the newest one needs no other. Its number is inside the signed body, and replicas
never go back to a lower one, so that a row that is stored again, or under another number, changes nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from proxy.core.rollout import SignedStep
from proxy.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from proxy.audit.signing_keys import PublicKey

type Action = Literal["push", "canary", "promote", "abort", "rollback"]
ACTIONS: Final[tuple[str, ...]] = get_args(Action.__value__)
FORMAT: Final = "interlock-policy-step-1"
MAX_REPLICAS: Final = 1000
MAX_GLOBS: Final = 100
MAX_TEXT: Final = 1000
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_LAST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Version:
    """A policy under a number: that of the step that brought it."""

    number: int
    digest: str

    def __str__(self) -> str:
        """Return what events and proposals call the policy that decided."""
        return f"v{self.number}-{self.digest}"


@dataclass(frozen=True, slots=True)
class Canary:
    """A version that is in force for some: at these replicas, or for agents whose names fit one of these globs."""

    version: Version
    replicas: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    number: int
    action: Action
    stable: Version
    operator: str
    at: float  # by the clock of whoever signed: for people, nothing depends on it
    previous: str  # SHA-256 of the body of the step before, or empty
    canary: Canary | None = None
    note: str = ""

    @property
    def versions(self) -> tuple[Version, ...]:
        return (self.stable,) if self.canary is None else (self.stable, self.canary.version)

    def body(self) -> str:
        """Return what is signed."""
        value = {
            "format": FORMAT,
            "number": self.number,
            "action": self.action,
            "stable": _version_data(self.stable),
            "canary": _canary_data(self.canary),
            "operator": self.operator,
            "at": self.at,
            "note": self.note,
            "previous": self.previous,
        }
        return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _version_data(version: Version) -> dict[str, Any]:
    return {"number": version.number, "digest": version.digest}


def _canary_data(canary: Canary | None) -> dict[str, Any] | None:
    if canary is None:
        return None
    return _version_data(canary.version) | {"replicas": list(canary.replicas), "agents": list(canary.agents)}


def link_of(step: SignedStep | None) -> str:
    """Return what the next step says of this one."""
    return "" if step is None else hashlib.sha256(step.body.encode()).hexdigest()


def sign(step: Step, key_id: str, key: Ed25519PrivateKey) -> SignedStep:
    body = step.body()
    parse(body)  # never sign what nobody would take
    return SignedStep(step.number, body, key_id, base64.b64encode(key.sign(_message(body))).decode())


def verify(signed: SignedStep, keys: Mapping[str, PublicKey]) -> Step:
    """Return what a step says. Raises PolicyError unless a trusted key signed it under its own number."""
    name = f"policy step {signed.number}"
    key = keys.get(signed.key_id)
    if key is None:
        raise PolicyError(
            f"{name} is signed by the key {signed.key_id[:40]!r}, which is not trusted here; "
            "give its public key to policy_keys, or find out who stored the step"
        )
    try:
        signature = base64.b64decode(signed.signature, validate=True)
    except (binascii.Error, ValueError):
        signature = b""
    if not key.verifies(signature, _message(signed.body)):
        raise PolicyError(f"{name} has no valid signature; find out who stored it")
    step = parse(signed.body)
    if step.number != signed.number:
        raise PolicyError(f"{name} was signed as step {step.number}; find out who stored it again")
    return step


def _message(body: str) -> bytes:
    # With its purpose in front: a signature for something else is none for a step.
    return FORMAT.encode() + b"\0" + body.encode("utf-8", "surrogatepass")


def parse(body: str) -> Step:
    """Return what a body says; its signature must be known to be good. Raises PolicyError."""
    try:
        value = json.loads(body)
        canary = value["canary"]
        step = Step(
            number=value["number"],
            action=value["action"],
            stable=_version(value["stable"]),
            operator=value["operator"],
            at=value["at"],
            previous=value["previous"],
            note=value["note"],
            canary=None if canary is None else _canary(canary),
        )
        fits = step.body() == body and _is_fit(step)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        fits = False
    if not fits:
        raise PolicyError(f"a policy step is not of the format {FORMAT}; upgrade this interlock")
    return step


def _version(value: dict[str, Any]) -> Version:
    return Version(value["number"], value["digest"])


def _canary(value: dict[str, Any]) -> Canary:
    return Canary(_version(value), tuple(value["replicas"]), tuple(value["agents"]))


def _is_fit(step: Step) -> bool:
    texts = (step.operator, step.note, step.previous)
    return (
        _is_number(step.number)
        and step.action in ACTIONS
        and all(isinstance(text, str) and len(text) <= MAX_TEXT for text in texts)
        and type(step.at) in (int, float)
        and math.isfinite(step.at)
        and all(_is_number(v.number) and v.number <= step.number and _is_digest(v.digest) for v in step.versions)
        and (step.canary is None or _is_fit_canary(step.canary))
    )


def _is_fit_canary(canary: Canary) -> bool:
    replicas, agents = canary.replicas, canary.agents
    if bool(replicas) == bool(agents) or len(replicas) > MAX_REPLICAS or len(agents) > MAX_GLOBS:
        return False
    return all(isinstance(name, str) and 0 < len(name) <= MAX_TEXT for name in (*replicas, *agents))


def _is_number(value: object) -> bool:
    return type(value) is int and 0 < value <= _LAST


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None
