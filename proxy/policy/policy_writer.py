"""Writes values as a policy file. Pure.

ASCII alone: a character that shows nothing is written as its escape, and means the same.
"""

from __future__ import annotations

from typing import Any

# No line is folded: ruamel.yaml reads a quoted text that it folded between two escapes with a space more.
WIDTH = 1 << 30


def write_yaml(value: Any) -> str:
    """Return values as YAML that people read."""
    from ruamel.yaml import YAML  # noqa: PLC0415  slow to import, and seldom needed

    writer: Any = YAML(typ="safe", pure=True)
    writer.default_flow_style, writer.allow_unicode, writer.width = False, False, WIDTH
    writer.sort_base_mapping_type_on_output = False
    # What stands twice is written twice: people read it, and a rule can be taken out by itself.
    writer.representer.ignore_aliases = lambda _: True
    written = _Written()
    writer.dump(value, written)
    return b"".join(written.parts).decode()


class _Written:
    """What a writer writes, without a file."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, text: bytes) -> None:
        self.parts.append(text)
