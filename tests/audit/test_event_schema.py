"""The published form of an event is the one that is stored."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from pydantic import ValidationError

from proxy.audit.encoder import encode
from proxy.audit.event_schema import StoredEvent, StoredFinding, json_schema
from proxy.core.model import SCHEMA_VERSION, AuditEvent, Finding

STAMP = {"writer": "w", "host": "h", "proxy_version": "1"}
FULL: dict[str, Any] = {
    "event_id": "e",
    "kind": "decided",
    "time": 1.5,
    "call_id": "c",
    "agent": "a",
    "authenticated": True,
    "server": "s",
    "transport": "stdio",
    "revision": "2025-06-18",
    "session": "x",
    "jsonrpc_id": 7,
    "method": "tools/call",
    "tool": "t",
    "arguments": {"a": [1]},
    "arguments_hash": "h",
    "decision": "allow",
    "reason": "r",
    "rule": "u",
    "rules": ("u",),
    "shadow_rules": ("v",),
    "policy_version": "p",
    "redactions": (Finding("d", "$.a", "f"),),
    "gate_ms": 1.0,
    "upstream_ms": 2.0,
    "total_ms": 3.0,
    "result_digest": "d",
    "result_size": 5,
    "is_error": False,
    "outcome": "ok",
    "detail": {"k": 1},
}


def test_the_two_forms_have_the_same_fields() -> None:
    travels = {field.name for field in dataclasses.fields(AuditEvent)}
    assert set(StoredEvent.model_fields) == travels | set(STAMP)
    assert set(FULL) | {"schema_version"} == travels
    assert set(StoredFinding.model_fields) == {field.name for field in dataclasses.fields(Finding)}


def test_every_field_comes_through_and_is_described() -> None:
    body = json.loads(encode(AuditEvent(**FULL), STAMP, b"key"))
    assert set(body) == set(StoredEvent.model_fields)
    read = StoredEvent.model_validate(body)
    assert (read.schema_version, read.jsonrpc_id, read.redactions[0].path) == (SCHEMA_VERSION, 7, "$.a")
    assert all(field.description for field in StoredEvent.model_fields.values())


def test_an_event_that_says_little_is_valid() -> None:
    StoredEvent.model_validate_json(encode(AuditEvent(event_id="e", kind="k", time=0.0)))


@pytest.mark.parametrize("change", [{"schema_version": 2}, {"time": -1}, {"transport": "pigeon"}, {"event_id": ""}])
def test_another_form_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        StoredEvent.model_validate(json.loads(encode(AuditEvent(**FULL))) | change)


def test_hashes_are_keyed() -> None:
    """A short argument or result could be guessed from a plain hash."""
    made = AuditEvent(**FULL)
    one, other = (json.loads(encode(made, STAMP, key)) for key in (b"1", b"2"))
    assert one["arguments_hash"] != other["arguments_hash"]
    assert one["result_digest"] != other["result_digest"]
    assert one["arguments_hash"] != "h"


def test_the_schema_names_its_version() -> None:
    schema = json_schema()
    assert schema["$id"].endswith(f":{SCHEMA_VERSION}")
    assert set(schema["required"]) == {"schema_version", "event_id", "kind", "time"}
