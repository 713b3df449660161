"""The whole table, in order."""

from __future__ import annotations

from tests.bypass import cases_connection, cases_encoding, cases_framing, cases_http, cases_json, cases_readers
from tests.bypass.shot import Case

CASES: tuple[Case, ...] = (
    *cases_json.CASES,
    *cases_encoding.CASES,
    *cases_http.CASES,
    *cases_framing.CASES,
    *cases_connection.CASES,
    *cases_readers.CASES,
)
