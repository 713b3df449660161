"""The halts in force in this process: whether a message or a plain request is halted, and what is said of that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.core.model import Call
from proxy.gate.refusal import sentence
from proxy.policy.decide import name_variants
from proxy.policy.globs import compile_globs
from proxy.policy.server_names import compile_servers
from proxy.policy.text import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from proxy.core.halts import Halt
    from proxy.core.model import Context

CANCEL = "notifications/cancelled"


class _Scope:
    """One halt, compiled. Names are globs, and fit in every reading, as those of a deny do."""

    def __init__(self, halt: Halt) -> None:
        self.halt = halt
        self._agent = _names(halt.agent)
        self._tool = _names(halt.tool)
        self._server = compile_servers(None if halt.server is None else [halt.server], strictly=False)

    def covers(self, call: Call) -> bool:
        if self.halt.tool is not None and call.tool is None:
            return False
        return any(
            self._server(server) and self._agent(agent) and self._tool(tool)
            for server, tool, agent in name_variants(call)
        )


def _names(pattern: str | None) -> Callable[[str], bool]:
    return compile_globs(None if pattern is None else [pattern, fold(pattern).strip()])


class ActiveHalts:
    """What is halted now. `update` replaces it as a whole, whenever it changes."""

    def __init__(self, halts: Iterable[Halt] = ()) -> None:
        self.active = False  # the one thing that a call looks at where nothing is halted
        self.halts: tuple[Halt, ...] = ()
        self._scopes: Sequence[_Scope] = ()
        self.update(halts)

    def update(self, halts: Iterable[Halt]) -> tuple[Halt, ...]:
        """Put these halts in force, and no others; return those that are new."""
        before = set(self.halts)
        self.halts = tuple(halts)
        self._scopes = [_Scope(halt) for halt in self.halts]
        self.active = bool(self._scopes)
        return tuple(halt for halt in self.halts if halt not in before)

    def find(self, call: Call) -> Halt | None:
        """Return the halt that a call meets, if any. A client may always take a call back."""
        if call.method == CANCEL:
            return None
        return next((scope.halt for scope in self._scopes if scope.covers(call)), None)

    def find_plain(self, context: Context) -> Halt | None:
        """Return the halt that a request which is not MCP meets, if any."""
        return self.find(Call("", context.server, context.principal.agent))


def covers(halt: Halt, call: Call) -> bool:
    """Return whether a halt is about a call."""
    return _Scope(halt).covers(call)


def why_halted(halt: Halt) -> str:
    """Say what is halted, by whom and why, for the model that made the call."""
    return f"{halt.operator} halted {halt.scope}: {sentence(halt.reason)}"
