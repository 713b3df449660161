"""Header fields: looked up by an index, and replaced as one `pop` and one assignment for each would."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mitmproxy.http import Headers

from addons.header_fields import index, replace_fields

NAMES = st.sampled_from([b"Host", b"host", b"Content-Length", b"content-length", b"Trailer", b"X"])
FIELDS = st.lists(st.tuples(NAMES, st.binary(max_size=3)), max_size=6)
LOWER = st.sampled_from([b"host", b"content-length", b"trailer", b"new"])


@given(FIELDS)
def test_the_index_has_every_value_of_a_name_in_order(fields: list[tuple[bytes, bytes]]) -> None:
    found = index(Headers(fields))
    assert found.keys() == {name.lower() for name, _ in fields}
    for name, values in found.items():
        assert values == [value for other, value in fields if other.lower() == name]


def test_the_index_follows_new_fields_and_none_is_stored_of_a_list() -> None:
    headers = Headers([(b"a", b"1")])
    assert index(headers) is index(headers)
    headers.fields = ((b"b", b"2"),)
    assert index(headers) == {b"b": [b"2"]}
    headers.fields = [(b"c", b"3")]  # type: ignore[assignment]
    assert index(headers) == {b"c": [b"3"]}
    headers.fields.append((b"d", b"4"))  # type: ignore[attr-defined]
    assert index(headers) == {b"c": [b"3"], b"d": [b"4"]}


@given(FIELDS, st.sets(LOWER), st.dictionaries(LOWER, st.binary(max_size=3)))
def test_fields_are_replaced_as_one_by_one(
    fields: list[tuple[bytes, bytes]], drop: set[bytes], put: dict[bytes, bytes]
) -> None:
    drop -= put.keys()
    at_once, one_by_one = Headers(fields), Headers(fields)
    replace_fields(at_once, drop, put)
    for name in drop:
        one_by_one.pop(name, None)
    for name, value in put.items():
        one_by_one[name] = value
    assert at_once.fields == one_by_one.fields
