"""RE2, and only RE2: a pattern or a text can never stall the proxy. Pure, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    try:
        search = re2.compile(pattern, options).search
    except re2.error as error:
        detail = error.args[0]
        said = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise ValueError(f"RE2 refuses this pattern: {said}") from None
    return lambda text: search(text) is not None
