"""The YAML of a policy file: parse it to nodes that know their place, and to plain values. Pure, no I/O.

ruamel is slow to import and to parse with: `load` imports this module only for a file that it has not seen before.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.scalarbool import ScalarBoolean

from proxy.policy.load_errors import locate

if TYPE_CHECKING:
    from collections.abc import Iterator

# In one file, with aliases expanded: a few lines of aliases of aliases would take all memory.
MAX_VALUES: Final = 200_000


class YamlFileError(Exception):
    """Text that is no policy's YAML, and its line and column, from 1."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


def parse_yaml(text: bytes) -> CommentedMap:
    """Parse one mapping. Raises YamlFileError."""
    try:
        nodes = YAML(typ="rt").load(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise YamlFileError(f"byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        said = (error.problem or error.context or "not YAML").split(" with value")[0]
        advice = "; keep one of the two" if "duplicate key" in said else ""
        raise YamlFileError(said + advice, line, column) from None
    except RecursionError:
        raise YamlFileError("nested too deeply to be read") from None
    except (YAMLError, ValueError) as error:
        raise YamlFileError(f"not YAML: {error}") from None
    if not isinstance(nodes, CommentedMap):
        found = "empty" if nodes is None else f"a {type(nodes).__name__.removeprefix('Commented').lower()}"
        raise YamlFileError(f"a policy is a mapping that starts with version: 1; this file is {found}")
    return nodes


def plain_values(nodes: CommentedMap) -> Any:
    """Return nodes as plain values. Raises YamlFileError: a tag, a type that JSON lacks, or too many values."""
    try:
        return _plain(nodes, count(1))
    except RecursionError:
        raise YamlFileError("an alias refers to itself") from None
    except _UnfitError as error:
        raise YamlFileError(str(error), *locate(nodes, error.steps)) from None


class _UnfitError(Exception):
    """A value that no field takes, and the steps that lead to it."""

    def __init__(self, message: str, steps: tuple[str | int, ...]) -> None:
        super().__init__(message)
        self.steps = steps


def _plain(node: Any, counted: Iterator[int], steps: tuple[str | int, ...] = ()) -> Any:
    """Return YAML nodes as plain values; raise _UnfitError for a tag, a type that JSON lacks, or too many values."""
    if next(counted) > MAX_VALUES:
        message = f"up to here the file holds more than {MAX_VALUES:,} values with aliases expanded; use fewer aliases"
        raise _UnfitError(message, steps[:2])
    tag = getattr(node, "tag", None)
    if tag is not None and tag.value is not None:
        raise _UnfitError(f"the tag {tag.value} has no meaning here; remove it", steps)
    if isinstance(node, CommentedMap):
        return {
            _plain(key, counted, (*steps, key)): _plain(value, counted, (*steps, key)) for key, value in node.items()
        }
    if isinstance(node, CommentedSeq):
        return [_plain(value, counted, (*steps, index)) for index, value in enumerate(node)]
    if isinstance(node, ScalarBoolean):
        return bool(node)
    if node is None or type(node) in (str, bool, int, float):
        return node
    for kind in (str, int, float):
        if isinstance(node, kind):
            return kind(node)
    raise _UnfitError(f"a {type(node).__name__} is neither text, number nor boolean; quote it", steps)
