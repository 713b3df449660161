"""Two copies less for each call: of the context when a stream gets its own, and of an option when it is read.

mitmproxy makes a whole Server, with an id and twenty checked fields, for every fork of a context, and then replaces
it by the one that the context had. And it copies every option deeply when it is read, also where that is a number.

Gain: @@
Unnecessary once mitmproxy's Context.fork takes the server, and OptManager copies only what can change.
"""

from __future__ import annotations

import copy
from typing import Any

from mitmproxy.optmanager import _Option, unset
from mitmproxy.proxy.context import Context


def install() -> None:
    """Have mitmproxy call these."""
    Context.fork = _fork  # type: ignore[method-assign]
    _Option.current = _current  # type: ignore[method-assign]


def _fork(self: Context) -> Context:
    made = Context.__new__(Context)
    made.client, made.server, made.options, made.layers = self.client, self.server, self.options, self.layers.copy()
    return made


def _current(self: _Option) -> Any:
    value = self._default if self.value is unset else self.value
    # A list would be changed in place by whoever gets it, so it is still copied.
    return value if value is None or isinstance(value, str | int | float) else copy.deepcopy(value)
