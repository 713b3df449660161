"""Answers that ride back on a ping's id."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.sse_ping_carrier import KEY_BYTES, PREFIX, TO_SERVER, carried, carrier

KEY, OTHER = b"k" * KEY_BYTES, b"o" * KEY_BYTES
ANSWERS = [{"jsonrpc": "2.0", "id": "é", "result": {"a": [1, 2]}}, {"jsonrpc": "2.0", "id": 1, "error": {}}]


def test_answers_survive_the_way_through_the_server() -> None:
    ping = carrier(ANSWERS, KEY)
    assert ping["method"] == "ping"
    assert carried(ping["id"], KEY) == ANSWERS


def test_the_server_cannot_read_an_answer() -> None:
    sealed = carrier([{"secret": "hunter2"}], KEY)["id"].removeprefix(PREFIX)
    assert b"hunter2" not in base64.urlsafe_b64decode(sealed + "==")


def test_what_is_for_the_server_cannot_be_taken_for_what_is_for_the_client() -> None:
    ping = carrier(ANSWERS, KEY, TO_SERVER)
    assert carried(ping["id"], KEY, TO_SERVER) == ANSWERS
    assert carried(ping["id"], KEY) is None
    assert carried(PREFIX + ping["id"].removeprefix(TO_SERVER), KEY) is None
    assert carried(carrier(ANSWERS, KEY)["id"], KEY, TO_SERVER) is None


def test_another_key_opens_nothing() -> None:
    assert carried(carrier(ANSWERS, OTHER)["id"], KEY) is None


def test_a_changed_id_opens_nothing() -> None:
    token = carrier(ANSWERS, KEY)["id"]
    changed = token[:30] + ("A" if token[30] != "A" else "B") + token[31:]
    assert carried(changed, KEY) is None


@pytest.mark.parametrize(
    "message_id", [None, 1, 1.5, [], "", "x", PREFIX, PREFIX + "é", PREFIX + "\udcff", PREFIX + "A"]
)
def test_an_id_that_is_not_ours_opens_nothing(message_id: object) -> None:
    assert carried(message_id, KEY) is None


@given(st.text(max_size=60))
def test_no_text_makes_opening_raise(text: str) -> None:
    assert carried(PREFIX + text, KEY) is None
