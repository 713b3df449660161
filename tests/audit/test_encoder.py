"""Events as they are stored: what says nothing is left out, and what is known of a text is what reading it gives."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.audit.encoder import Encoder, encode
from proxy.core import event_columns
from proxy.core.event_columns import PoisonError, columns
from proxy.core.model import AS_RECORDED, AuditEvent, Finding
from proxy.errors import WireError
from proxy.wire.jsonrpc import serialise
from tests.core.test_event_columns import ANY_JSON, ANY_TEXT

STAMP = {"writer": "w", "host": 'h\u00e9"', "proxy_version": "1"}
ORDINARY: dict[str, Any] = {
    "event_id": "e",
    "kind": "decided",
    "time": 1.5,
    "agent": "a",
    "jsonrpc_id": 7,
    "tool": "t" * 200,
    "arguments": {"a": ["1e5", 2, 1e-7, 1e22, -0.0, {}, [], None, True], "\u2028": '\x7f\\"'},
    "arguments_hash": "h",
    "rules": ("é", "\x1b"),
    "redactions": (Finding("d", "$.a", "f", record_only=True),),
    "gate_ms": 0.25,
    "result_size": 1 << 62,
    "is_error": False,
    "detail": {"n": 1 << 63},
}


def test_the_stored_form_leaves_out_what_says_nothing() -> None:
    made = AuditEvent(
        event_id="1",
        kind="decided",
        time=1.5,
        redactions=(Finding("d", "$.a", "f"),),
        jsonrpc_id=0,
        is_error=False,
        arguments={},
    )
    assert json.loads(encode(made)) == {
        "event_id": "1",
        "schema_version": 1,
        "kind": "decided",
        "time": 1.5,
        "authenticated": False,
        "jsonrpc_id": 0,
        "is_error": False,
        "redactions": [{"detector": "d", "path": "$.a", "fingerprint": "f", "maskable": True}],
    }


@pytest.mark.parametrize("stamp", [None, STAMP])
def test_of_an_ordinary_event_all_is_known_without_reading(stamp: dict[str, str] | None) -> None:
    body, said = Encoder(stamp, b"key").encode(AuditEvent(**ORDINARY))
    assert said is not None
    assert event_columns._as_columns(said, body) == columns(body)
    assert json.loads(body)["arguments"] == ORDINARY["arguments"]
    assert {name: json.loads(body)[name] for name in stamp or {}} == (stamp or {})


TEXTS = st.none() | ANY_TEXT | st.sampled_from(["x" * 201, "\0", "\ud800", '"\\'])
ODDLY: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("event_id", "kind"), ANY_TEXT | st.just("x" * 201)),
    "time": st.floats(0, 1e12) | st.integers(-1, 1 << 40),
    **dict.fromkeys(("agent", "session", "method", "tool", "reason", "outcome"), TEXTS),
    "decision": st.sampled_from(["allow", "x" * 17, None]),
    "jsonrpc_id": st.none() | st.integers(-1 << 70, 1 << 70) | ANY_TEXT,
    "arguments": ANY_JSON | st.sampled_from(["y" * (1 << 17), [[[]] * 3], [0] * 1025, {"n": 1 << 64}]),
    "rules": st.lists(ANY_TEXT, max_size=2).map(tuple),
    "gate_ms": st.none() | st.floats(0, 1e9) | st.integers(0, 9),
    "result_size": st.none() | st.integers(-1 << 64, 1 << 64),
    "is_error": st.none() | st.booleans(),
    "detail": st.dictionaries(st.sampled_from(["a", "proposal_id"]), ANY_JSON, max_size=2),
}


@given(st.fixed_dictionaries({}, optional=ODDLY), st.booleans())
@example({}, True)
@example({"detail": {"proposal_id": "p"}}, True)
@example({"detail": {"proposal_id": None}}, False)
@example({"arguments": [float("inf")]}, True)
@example({"arguments": float("nan")}, True)
@example({"arguments": {}}, True)
def test_what_is_known_of_a_text_is_what_reading_it_gives(fields: dict[str, Any], stamped: bool) -> None:
    """With a hash that is given, and with one that is made of the arguments that are recorded."""
    _agree(ORDINARY | fields, STAMP if stamped else None)
    arguments = fields.get("arguments", ORDINARY["arguments"])
    try:
        hashed = hashlib.sha256(serialise(arguments)).hexdigest()
    except (WireError, ValueError):
        with pytest.raises(ValueError, match=r"surrogates|JSON compliant"):
            encode(AuditEvent(**ORDINARY | fields | {"arguments_hash": AS_RECORDED}))
        return
    _agree(ORDINARY | fields | {"arguments_hash": AS_RECORDED}, STAMP if stamped else None)
    made = json.loads(encode(AuditEvent(**ORDINARY | {"arguments": arguments, "arguments_hash": AS_RECORDED})))
    assert made["arguments_hash"] == hashed
    assert repr(made.get("arguments")) == repr(arguments if arguments not in ((), {}) else None)


def test_an_event_without_an_id_is_given_one() -> None:
    first, second = (json.loads(encode(AuditEvent(kind="k", time=0.0)))["event_id"] for _ in range(2))
    assert first != second
    assert len(first) == len(second) == 36


def _agree(fields: dict[str, Any], stamp: dict[str, str] | None) -> None:
    body, said = Encoder(stamp, b"key").encode(AuditEvent(**fields))
    try:
        read = columns(body)
    except PoisonError as error:
        with pytest.raises(PoisonError, match=str(error)[:5]):
            columns(body, said)
        return
    assert columns(body, said) == read
