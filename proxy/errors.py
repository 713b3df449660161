"""The exceptions Interlock raises on purpose.

InterlockError
├── ConfigError         a setting is wrong; the message names it and the way out
├── PolicyError         a policy file is wrong; the message has file, line and the way out
├── WireError           bytes that cannot be taken as one well-formed message
├── AuditUnavailableError  an event could not be made durable
├── StartError          a server's program cannot be started; it has the exit code for that
├── TracingError        a server cannot be traced; the message says what to allow
├── ServerError         a server cannot be probed: it ended, or does not answer
├── BoardUnavailableError  what workers share cannot be read or written
├── PinsUnavailableError   the tools' pins cannot be read or written
├── StoreUnavailableError  the store of proposals cannot be reached
│   ├── SchemaError     the store's tables are not those that this version needs
│   └── StoreRefusedError  the store was reached and did not take what it was given
├── PhaseError          a proposal or a commit is refused
├── SamplerError        no candidate outputs could be had
└── ReviewError         an operator's decision on a proposal cannot be made
"""

from __future__ import annotations


class InterlockError(Exception):
    """Base of every error whose message is meant for a person."""


class ConfigError(InterlockError):
    """A setting cannot be used."""


class PolicyError(InterlockError):
    """A policy cannot be used."""


class WireError(InterlockError):
    """Bytes refused by the strict reader.

    `reason` is a stable reason code (docs/reason-codes.md).
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class StartError(InterlockError):
    """A server's program cannot be started; `code` is the exit code that shells give then."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class ServerError(InterlockError):
    """A server ended or does not answer; the message has its last words."""


class TracingError(InterlockError):
    """strace is not there, or may not trace."""


class AuditUnavailableError(InterlockError):
    """The durable log did not take an event, so nothing may be forwarded."""


class SharedCallsUnavailableError(InterlockError):
    """What workers share cannot be read or written, so a call that may be answered elsewhere is refused."""


class PinsUnavailableError(InterlockError):
    """A server's pins cannot be read or written, so nothing is known of its tools."""


class PhaseError(InterlockError):
    """A proposal or a commit that is refused.

    `reason` is a stable reason code (docs/reason-codes.md).
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class SamplerError(InterlockError):
    """There are no candidate outputs. The message says why, without anything the endpoint said."""


class StoreUnavailableError(InterlockError):
    """The store does not answer, so nothing can be proposed or committed."""


class SchemaError(StoreUnavailableError):
    """The store's tables are older than this version needs, or not what it knows; the message has the way out."""


class StoreRefusedError(StoreUnavailableError):
    """The store answers, and does not take what it was given: another try would end the same."""


class ReviewError(InterlockError):
    """A proposal cannot be shown or decided on as asked.

    `code` is stable (docs/approval.md).
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
