"""The exceptions that Interlock raises on purpose. Each message is meant for a person."""

from __future__ import annotations


class InterlockError(Exception): ...  # the base of all of them


class ConfigError(InterlockError): ...  # a setting cannot be used; the message names it and says what to do


class PolicyError(InterlockError): ...  # a policy cannot be used; the message has file, line and what to write


class ReasonError(InterlockError):  # refused for a stable reason code (docs/reason-codes.md)
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


# Siblings, not one class: a handler of malformed bytes must never swallow a refused commit.
class WireError(ReasonError): ...  # bytes that are not one well-formed message


class PhaseError(ReasonError): ...  # a proposal or a commit is refused


class AuditUnavailableError(InterlockError): ...  # the log did not take an event, so nothing may be forwarded


class StartError(InterlockError):  # a server's program cannot be started; `code` is the exit code that shells use
    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class TracingError(InterlockError): ...  # strace is missing or may not trace; the message says what to allow


class ServerError(InterlockError): ...  # a server ended or does not answer; the message has its last output


class SharedCallsUnavailableError(InterlockError): ...  # the calls that workers share cannot be read or written


class PinsUnavailableError(InterlockError): ...  # a server's pins cannot be read or written: its tools are unknown


class StoreUnavailableError(InterlockError): ...  # it does not answer, so nothing can be proposed or committed


class SchemaError(StoreUnavailableError): ...  # its tables do not fit this version; the message says what to do


class StoreRefusedError(StoreUnavailableError): ...  # it answers and refuses the data: a retry would fail too


class SamplerError(InterlockError): ...  # no candidate outputs; the message repeats nothing that the endpoint said


class ReviewError(InterlockError):  # a proposal cannot be shown or decided; `code` is stable (docs/approval.md)
    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
