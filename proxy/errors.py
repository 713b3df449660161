"""The exceptions that Interlock raises on purpose. Each message is meant for a person.

InterlockError
├── ConfigError            a setting cannot be used; the message names it and says what to do
├── PolicyError            a policy cannot be used; the message has file, line and what to write
├── ReasonError            refused for a stable reason code (docs/reason-codes.md)
│   ├── WireError          bytes that are not one well-formed message
│   ├── PhaseError         a proposal or a commit is refused
│   ├── LimitError         a limit of the policy has no room for a call
│   ├── VaultError         a credential of the vault may not be used there, or its value cannot be had
│   ├── CredentialError    an agent's token or certificate is refused; `detail` does not quote it
│   └── RuleProposalError  a rule that an agent proposes is not taken
├── AuditUnavailableError  the durable log did not take an event, so nothing may be forwarded
├── StartError             a server's program cannot be started; `code` is the exit code that shells use
├── TracingError           strace is missing or may not trace; the message says what to allow
├── ServerError            a server ended or does not answer; the message has its last output
├── SharedCallsUnavailableError  the calls that workers share cannot be read or written
├── PinsUnavailableError   a server's pins cannot be read or written, so its tools are unknown
├── StoreUnavailableError  the store does not answer, so nothing can be proposed or committed
│   ├── SchemaError        the store's tables do not fit this version; the message says what to do
│   ├── StoreRefusedError  the store answers and refuses the data: a retry would fail too
│   └── StoreForbiddenError  the store's login has no right to do it; the message says whose has
├── NotifyError            a target did not take a notice; the message holds neither its URL nor its secret
├── SamplerError           no candidate outputs; the message repeats nothing that the endpoint said
└── ReviewError            a proposal cannot be shown or decided; `code` is stable (docs/approval.md)
"""

from __future__ import annotations


class InterlockError(Exception):
    """Base of every error whose message is meant for a person."""


class ConfigError(InterlockError): ...


class PolicyError(InterlockError): ...


class ReasonError(InterlockError):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


# Siblings, not one class: a handler of malformed bytes must never swallow a refused commit.
class WireError(ReasonError): ...


class PhaseError(ReasonError): ...


class LimitError(ReasonError): ...


class VaultError(ReasonError): ...


class CredentialError(ReasonError): ...


class RuleProposalError(ReasonError): ...


class AuditUnavailableError(InterlockError): ...


class StartError(InterlockError):
    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class TracingError(InterlockError): ...


class ServerError(InterlockError): ...


class SharedCallsUnavailableError(InterlockError): ...


class PinsUnavailableError(InterlockError): ...


class StoreUnavailableError(InterlockError): ...


class SchemaError(StoreUnavailableError): ...


class StoreRefusedError(StoreUnavailableError): ...


class StoreForbiddenError(StoreUnavailableError): ...


class NotifyError(InterlockError): ...


class SamplerError(InterlockError): ...


class ReviewError(InterlockError):
    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
