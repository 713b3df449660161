"""YAML: values with their positions. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from proxy.agent.config_tree import Member, Node, Tree
from proxy.errors import ConfigError

if TYPE_CHECKING:
    from ruamel.yaml.nodes import Node as YamlNode

_STRING_TAG = "tag:yaml.org,2002:str"


def parse(text: str) -> Tree:
    """Parse a document that is a mapping. Raises ConfigError."""
    try:
        composed = YAML(typ="rt", pure=True).compose(text)
    except YAMLError as error:
        raise ConfigError(f"it is not YAML: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise ConfigError("it is not YAML that can be read: it is nested too deeply") from None
    if not isinstance(composed, MappingNode):
        raise ConfigError("it contains no mapping with servers")
    return Tree(text, text, _node(composed, ()))


def encode(word: str) -> str:
    # A JSON string is a YAML string, on one line. Quoted, since `--`, `yes` and `1` mean something else without.
    return json.dumps(word, ensure_ascii=not word.isprintable())


def _node(composed: YamlNode, above: tuple[YamlNode, ...]) -> Node:
    if any(composed is each for each in above):
        raise ConfigError("it contains an alias of a value inside that value")
    start, end, above = composed.start_mark.index, composed.end_mark.index, (*above, composed)
    if isinstance(composed, MappingNode):
        pairs = ((_key(key), key.start_mark.index, value) for key, value in composed.value)
        members = [Member(key, at, _node(value, above)) for key, at, value in pairs]
        return Node(start, end, members=members, on_lines=not composed.flow_style)
    if isinstance(composed, SequenceNode):
        items = [_node(item, above) for item in composed.value]
        return Node(start, end, items=items, on_lines=not composed.flow_style)
    assert isinstance(composed, ScalarNode)
    is_text = composed.tag == _STRING_TAG or str(composed.ctag) == _STRING_TAG
    # What is no string is only compared: its tag and its text say all.
    return Node(start, end, composed.value if is_text else (str(composed.tag), composed.value))


def _key(key: YamlNode) -> str:
    return key.value if isinstance(key, ScalarNode) else f"\0{key.start_mark.index}"
