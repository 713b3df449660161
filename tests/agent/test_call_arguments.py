"""Words of a command line as the arguments of a tool."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.agent.call_arguments import read_arguments
from proxy.errors import ConfigError

SCHEMA = {
    "properties": {
        "path": {"type": "string"},
        "note": {"type": ["string", "null"]},
        "count": {"type": "integer"},
        "tags": {"type": "array"},
    }
}


@pytest.mark.parametrize(
    ("word", "key", "value"),
    [
        ("path=/etc/passwd", "path", "/etc/passwd"),
        ("path=3", "path", "3"),
        ("note=null", "note", "null"),
        ("count=3", "count", 3),
        ('tags=["a","b"]', "tags", ["a", "b"]),
        ("tags=a", "tags", "a"),
        ("other=true", "other", True),
        ("other=plain words", "other", "plain words"),
        ("path:=3", "path", 3),
        ("path=a=b", "path", "a=b"),
        ("path=", "path", ""),
    ],
)
def test_a_value_is_what_the_schema_says(word: str, key: str, value: Any) -> None:
    assert read_arguments([word], SCHEMA) == {key: value}
    assert type(read_arguments([word], SCHEMA)[key]) is type(value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["path"], "'path' is not an argument; write key=value"),
        (["=x"], "'=x' is not an argument"),
        (["path=a", "path=b"], "the argument 'path' is given twice"),
        (["count:=x"], "the argument 'count' is not JSON"),
    ],
)
def test_what_is_no_argument_is_named(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match="^" + said.replace("(", r"\(")):
        read_arguments(words, SCHEMA)
    assert read_arguments([], {"properties": "odd"}) == {}
