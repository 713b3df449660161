"""Headers that are looked up by an index answer and change as mitmproxy's own do, whatever is asked of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy.http import Headers

from addons.mitm.fast.header_index import METHODS

Indexed = type("Indexed", (Headers,), METHODS)

NAMES = st.sampled_from([b"Host", b"host", b"HOST", b"Content-Length", b"x\xc3\xa9", b"x\xff", b"", b"\xc4\xb0"])
VALUES = st.one_of(st.sampled_from([b"", b"a, b", b"\xc3", b"\xa9", b"\xff\xfe"]), st.binary(max_size=4))
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=6)
ASKED = st.one_of(
    NAMES,
    NAMES.map(lambda name: name.decode("utf-8", "surrogateescape")),
    st.sampled_from(["missing", "hOsT", "X\xc9"]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["get_all", "__getitem__", "__contains__", "get", "pop", "__delitem__"]), ASKED),
        st.tuples(st.sampled_from(["get", "pop"]), ASKED, st.none()),
        st.tuples(st.sampled_from(["__setitem__", "add"]), ASKED, VALUES),
        st.tuples(st.just("set_all"), ASKED, st.lists(VALUES, max_size=3)),
        st.tuples(st.just("insert"), st.integers(0, 3), ASKED, VALUES),
    ),
    max_size=8,
)


def outcome(headers: Headers, name: str, *args: Any) -> object:
    try:
        # Each has its own list: mitmproxy empties the one it is given.
        return getattr(headers, name)(*(list(arg) if isinstance(arg, list) else arg for arg in args))
    except KeyError as error:
        return error.args


@given(FIELDS, STEPS)
def test_indexed_headers_are_as_mitmproxys_own(fields, steps):
    assert Headers.get_all is not METHODS["get_all"]
    plain, indexed = Headers(fields), Indexed(fields)
    for step in steps:
        assert outcome(indexed, *step) == outcome(plain, *step)
        assert indexed.fields == plain.fields
        assert list(indexed.items()) == list(plain.items())
        assert bytes(indexed) == bytes(plain)


@given(FIELDS, FIELDS, ASKED)
def test_new_fields_are_indexed_anew(before, after, name):
    indexed = Indexed(before)
    indexed.get_all(name)
    indexed.fields = tuple(after)
    assert indexed.get_all(name) == Headers(after).get_all(name)
    indexed.fields = list(after)  # nobody does; an index of what can change is not kept
    indexed.get_all(name)
    indexed.fields.append((b"Host", b"later"))
    assert indexed.get_all("host")[-1:] == ["later"]


def test_headers_are_made_of_bytes():
    assert Indexed([(b"a", b"b")], content_type="x", host=b"y").fields == (
        (b"a", b"b"),
        (b"content-type", b"x"),
        (b"host", b"y"),
    )
    with pytest.raises(TypeError):
        Indexed([("a", b"b")])
    with pytest.raises(TypeError):
        Indexed().get(3)
