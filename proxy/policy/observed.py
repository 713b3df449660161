"""Rules on what local servers are observed to do: which acts, and what becomes of the call. Pure, no I/O.

A rule's condition reads an act as it would read the arguments of a call: `path`, `host`, `port`, `program`,
`command`. It matches where some reading of them does, and where they cannot be judged.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field, StrictStr, model_validator

from proxy.core.acts import Act, ActOutcome, ActPhase, ActRule
from proxy.core.defaults import empty_list
from proxy.core.model import Call
from proxy.policy.conditions import NonEmptyList, Strict, When, conditions_in, earlier_in
from proxy.policy.eval_context import EvalContext
from proxy.policy.globs import compile_globs
from proxy.policy.home import UNKNOWN_HOMES
from proxy.policy.operators import compile_when
from proxy.policy.rule_parts import ByName, Globs
from proxy.policy.server_names import compile_servers
from proxy.policy.text import fold
from proxy.policy.views import YES, Test

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from proxy.core.model import JsonObject

type ActName = Literal[
    "fs.read",
    "fs.write",
    "fs.delete",
    "net.connect",
    "net.dns",
    "net.listen",
    "ipc.unix",
    "proc.exec",
    "exec.fileless",
    "kernel",
    "read",
    "write",
    "unlink",
    "exec",
    "connect",
    "dns",
    "listen",
    "unix",
]
type During = Literal["startup", "calls", "between"]

# Shorter names: the kinds of acts that they stand for, and where not all of those, the actions.
_SHORT: Final[dict[str, tuple[frozenset[str], frozenset[str] | None]]] = {
    "read": (frozenset({"fs.read"}), None),
    "write": (frozenset({"fs.write"}), None),
    "unlink": (frozenset({"fs.delete"}), frozenset({"unlink", "rmdir"})),
    "exec": (frozenset({"proc.exec", "exec.fileless"}), None),
    "connect": (frozenset({"net.connect"}), None),
    "dns": (frozenset({"net.dns"}), None),
    "listen": (frozenset({"net.listen"}), None),
    "unix": (frozenset({"ipc.unix"}), None),
}
_PHASES: Final[dict[ActPhase, During]] = {"startup": "startup", "call": "calls", "ambient": "between"}
_PHASE_OF: Final[dict[During, ActPhase]] = {during: phase for phase, during in _PHASES.items()}
# What a condition may ask of an act.
VALUES: Final = ("act", "action", "path", "host", "port", "program", "command", "error")
# Programs look for files in many places: what was not there was not touched.
_MISSING: Final = frozenset({"ENOENT", "ENOTDIR"})
_MAX_KNOWN: Final = 4096


class TestAct(Strict):
    """The act of a test: what the server did, in which tool."""

    __test__ = False

    act: ActName = Field(description="What was done, such as fs.read, exec or connect.")
    action: StrictStr | None = Field(default=None, description="The action, where it matters: open, unlink, rename.")
    path: StrictStr | None = Field(default=None, description="The file, folder, socket or program.")
    host: StrictStr | None = Field(default=None, description="The address of the peer, or the name looked up.")
    port: int | None = Field(default=None, ge=0, le=65535, description="The port of the peer.")
    command: list[StrictStr] = Field(default_factory=empty_list, description="The words of an executed command.")
    error: StrictStr | None = Field(default=None, description="The error, such as EACCES, if it failed.")
    server: StrictStr = Field(default="server", description="The server that did it.")
    tool: StrictStr = Field(default="", description="The tool in whose call it was done.")
    during: During = Field(default="calls", description="When it was done.")

    def as_act(self) -> Act:
        kinds, actions = _SHORT.get(self.act, (frozenset({self.act}), None))
        action = self.action or min(actions or {self.act})
        return Act(min(kinds), action, self.path, self.host, self.port, tuple(self.command), self.error)


class ActTest(Strict):
    """An act, and what this rule alone makes of it."""

    name: StrictStr | None = Field(default=None, description="A name for the test.")
    seen: TestAct = Field(description="The act to judge.")
    expect: Literal["tell", "withhold", "deny", "no_match"] = Field(description="This rule's action, or no_match.")


class ObservedRule(ByName):
    """What becomes of a call in which a local server, run by `interlock run`, is observed to do something."""

    on: Literal["observed"] = Field(description="This kind of rule.")
    action: ActOutcome = Field(
        description="tell: record it; withhold: the answer of the call is not passed on; deny: it is not, and the "
        "server is ended as soon as the act is seen."
    )
    acts: NonEmptyList[ActName] = Field(
        description="What was done: fs.read, fs.write, fs.delete, net.connect, net.dns, net.listen, ipc.unix, "
        "proc.exec, exec.fileless, kernel; or in short read, write, unlink, exec, connect, dns, listen, unix."
    )
    servers: Globs | None = Field(default=None, description="Globs over server names; all servers if absent.")
    tools: Globs | None = Field(default=None, description="Globs over the tools in whose calls it was done.")
    during: NonEmptyList[During] = Field(
        default=["calls", "between"],
        description="When: in calls, between them, or while the server starts, which loads much and runs programs.",
    )
    when: When | None = Field(
        default=None,
        description="The condition on the act: arg is path, host, port, program, command, act, action or error.",
    )
    tests: list[ActTest] = Field(default_factory=empty_list, description="Tests that `interlock policy test` runs.")

    @model_validator(mode="after")
    def _fits_acts(self) -> ObservedRule:
        for condition in conditions_in(self.when):
            if condition.arg not in VALUES:
                raise ValueError(f"an act has no {condition.arg!r}; ask for one of {', '.join(VALUES)}")
        if any(earlier_in(self.when)):
            raise ValueError("after: is about calls, and cannot be asked of an act")
        for number, test in enumerate(self.tests, 1):
            if test.expect not in (self.action, "no_match"):
                raise ValueError(f"test {number} expects {test.expect!r}; expect {self.action!r} or 'no_match'")
        return self


class CompiledObserved:
    """The rules on acts; false where there are none. `homes` are the folders that `~` may stand for."""

    def __init__(self, rules: Iterable[ObservedRule] = (), homes: Iterable[str] = ()) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: rule.id))
        homes = tuple(homes) or UNKNOWN_HOMES
        self._compiled = tuple(CompiledActRule(rule, homes) for rule in self.rules)
        self._known: dict[Act, tuple[CompiledActRule, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self.rules)

    @property
    def compiled(self) -> tuple[CompiledActRule, ...]:
        """The rules, in the order of their ids."""
        return self._compiled

    def holds_answers(self, server: str) -> bool:
        """Return whether some answer of a server may have to be withheld."""
        return any(rule.holds and rule.fits_server(server) for rule in self._compiled)

    def judge(self, act: Act, phase: ActPhase, call: Call) -> Iterator[ActRule]:
        """Yield the rules that an act meets, where it was done in `call`; outside of calls, that names no tool."""
        matching = self._known.get(act)
        if matching is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            matching = self._known[act] = tuple(rule for rule in self._compiled if rule.matches(act))
        return (rule.met for rule in matching if rule.covers(phase, call))


class CompiledActRule:
    """One rule on acts, ready to be asked."""

    def __init__(self, rule: ObservedRule, homes: tuple[str, ...] = UNKNOWN_HOMES) -> None:
        self.rule = rule
        shadow = rule.mode == "shadow"
        self.met = ActRule(rule.id, rule.action, shadow, rule.description)
        self.holds = rule.action != "tell" and not shadow
        self.fits_server = compile_servers(rule.servers, strictly=False)
        self._fits_tool = compile_globs(rule.tools)
        self._fits_agent = compile_globs(rule.agents)
        self._acts = [_SHORT.get(name, (frozenset({name}), None)) for name in rule.acts]
        self._during = frozenset(rule.during)
        self._test: Test = compile_when(rule.when) if rule.when is not None else lambda _context: YES
        self._asks_command = any(condition.arg == "command" for condition in conditions_in(rule.when))
        self.homes = homes

    def matches(self, act: Act) -> bool:
        """Return whether the rule is about such an act, whoever did it when."""
        if act.error in _MISSING or not any(
            act.kind in kinds and (actions is None or act.action in actions) for kinds, actions in self._acts
        ):
            return False
        # What was cut off might be what the rule asks for.
        if act.partial and self._asks_command:
            return True
        try:
            return bool(self._test(EvalContext(values_of(act), "", self.homes)))
        except Exception:  # noqa: BLE001 - the boundary: an act that cannot be judged counts
            return True

    def meets(self, test: TestAct) -> bool:
        """Return whether the rule is about the act of a test."""
        call = Call("tools/call", test.server, "agent", test.tool)
        return self.matches(test.as_act()) and self.covers(_PHASE_OF[test.during], call)

    def covers(self, phase: ActPhase, call: Call) -> bool:
        """Return whether the rule is about acts of this phase and call."""
        if _PHASES[phase] not in self._during:
            return False
        # Outside of calls nobody knows for which tool it was done: it may have been for one of the rule's.
        tools, agents = _readings(call.tool or ""), _readings(call.agent)
        fits = phase != "call" or any(map(self._fits_tool, tools))
        return fits and self.fits_server(call.server) and any(map(self._fits_agent, agents))


def _readings(name: str) -> set[str]:
    """Return a name as given, and as a lax reader takes it."""
    return {name, fold(name).strip()}


def values_of(act: Act) -> JsonObject:
    """Return what conditions read of an act."""
    program = act.path if act.kind in ("proc.exec", "exec.fileless") else None
    values = {
        "act": act.kind,
        "action": act.action,
        "path": act.path,
        "host": act.host,
        "port": act.port,
        "program": program,
        "command": shlex.join(act.argv) if act.argv else None,
        "error": act.error,
    }
    return {name: value for name, value in values.items() if value is not None}
