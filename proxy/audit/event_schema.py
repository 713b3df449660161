"""The published form of a stored audit event, version 1: what `interlock audit schema` prints. Pure.

`model.AuditEvent` is what travels; the log adds who wrote it (`writer`, `host`,
`proxy_version`). A test holds the two forms together.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from proxy.core.defaults import empty_dict
from proxy.core.model import SCHEMA_VERSION


class StoredFinding(BaseModel):
    """A secret or personal datum that was found: what and where, never the value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    detector: str = Field(description="What kind of datum.")
    path: str = Field(description="Where it stood.")
    fingerprint: str = Field(description="Keyed hash of it: the same datum has the same one.")
    maskable: bool = Field(True, description="Whether it could be masked without changing a type.")
    record_only: bool = Field(False, description="Whether only this record was masked, because no rule redacts it.")


class StoredEvent(BaseModel):
    """One thing that happened, as it is stored. Fields that say nothing are left out."""

    model_config = ConfigDict(frozen=True, extra="allow", title="Interlock audit event")

    schema_version: Literal[1] = Field(description="Version of this schema.")
    event_id: str = Field(min_length=1, description="UUIDv7 of the event.")
    kind: str = Field(min_length=1, description="What happened: decided, completed, proposed, approved and so on.")
    time: float = Field(ge=0, description="When, in seconds since the epoch, by the proxy's clock.")
    writer: str | None = Field(None, description="The log that it was written to; the hash chain is the writer's.")
    host: str | None = Field(None, description="The machine that the proxy ran on.")
    proxy_version: str | None = Field(None, description="The proxy's version.")
    call_id: str | None = Field(None, description="The call that it belongs to; a refusal's audit id.")
    agent: str | None = Field(None, description="Who called.")
    authenticated: bool = Field(False, description="Whether a token proved who called.")
    server: str | None = Field(None, description="The MCP server.")
    transport: Literal["http", "sse", "websocket", "stdio", "hook"] | None = Field(
        None, description="How it was reached."
    )
    revision: str | None = Field(None, description="The MCP revision spoken.")
    session: str | None = Field(None, description="The MCP session.")
    jsonrpc_id: str | int | None = Field(None, description="The id of the JSON-RPC request.")
    method: str | None = Field(None, description="The JSON-RPC method.")
    tool: str | None = Field(None, description="The tool.")
    arguments: Any = Field(None, description="The arguments, or the parameters of another method, masked.")
    arguments_hash: str | None = Field(None, description="Keyed hash of the exact arguments.")
    decision: str | None = Field(None, description="allow, deny or propose.")
    reason: str | None = Field(None, description="The reason code.")
    rule: str | None = Field(None, description="The rule that decided.")
    rules: tuple[str, ...] = Field((), description="Every rule that matched and is enforced.")
    shadow_rules: tuple[str, ...] = Field((), description="Rules in shadow mode that matched.")
    policy_version: str | None = Field(None, description="Hash of the policy in force.")
    redactions: tuple[StoredFinding, ...] = Field((), description="What was found and where, never the value.")
    gate_ms: float | None = Field(None, description="Milliseconds until the decision.")
    upstream_ms: float | None = Field(None, description="Milliseconds that the server took.")
    total_ms: float | None = Field(None, description="Milliseconds of the whole call.")
    result_digest: str | None = Field(None, description="Keyed hash of the result as it was delivered.")
    result_size: int | None = Field(None, ge=0, description="Bytes of the result as it came.")
    is_error: bool | None = Field(None, description="Whether the tool said that it failed.")
    outcome: str | None = Field(None, description="How the call ended.")
    detail: dict[str, Any] = Field(default_factory=empty_dict, description="What only this kind of event has.")


def json_schema() -> dict[str, Any]:
    names = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:interlock:audit-event:{SCHEMA_VERSION}",
    }
    return names | StoredEvent.model_json_schema()
