"""RE2, and only RE2: a pattern or a text can never stall the proxy. Pure, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import re2

if TYPE_CHECKING:
    from collections.abc import Callable

escape: Callable[[str], str] = re2.escape


def compile_search(pattern: str) -> Callable[[str], bool]:
    """Give the test whether `pattern` is found anywhere in a text.

    Raises ValueError with RE2's own words where it refuses the pattern.
    """
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True  # what a group holds is never asked
    try:
        match = re2.compile(pattern, options)._regexp.Match  # noqa: SLF001  its `search` makes objects that cost more than it
    except re2.error as error:
        detail = error.args[0]
        said = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise ValueError(f"RE2 refuses this pattern: {said}") from None

    def search(text: str) -> bool:
        data = text.encode()
        return bool(match(_ANYWHERE, data, 0, len(data))[0] != _NOWHERE)

    return search


_ANYWHERE: Final = re2._Anchor.UNANCHORED  # noqa: SLF001
_NOWHERE: Final = (-1, -1)
