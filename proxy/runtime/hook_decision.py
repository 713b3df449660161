"""Answers the hook of a client that asks before it uses one of its own tools: what `interlock policy decide` does.

A client starts one process for each call of its tools and waits for it, so this imports little.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from proxy.system import log_setup  # before all others: it imports structlog without rich

# isort: split
from proxy.agent.hook_formats import BLOCK, FORMATS, Answered, Asked, parse
from proxy.audit.pipeline import AuditPipeline
from proxy.audit.restored import open_run_log
from proxy.config import Settings, load_settings
from proxy.core.model import Answer, Call, Context, Decision, Forward, Outcome, Principal, Verdict
from proxy.errors import ConfigError
from proxy.gate.gate import Gate, OpenFlows
from proxy.gate.limits import CallLimits
from proxy.runtime.halt_watcher import read_halts
from proxy.runtime.outside_services import open_services
from proxy.runtime.preload import preload
from proxy.runtime.wiring import flow_key, open_limits, open_marks
from proxy.store.open_store import open_database
from proxy.system.terminal_text import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from proxy.commands.run_flags import DecideFlags
    from proxy.core.interfaces import Policy

MAX_INPUT = 1 << 24
# Less than clients wait for a hook: one that takes longer is ended, and in older versions the call then passes.
SECONDS = 30


def answer_hook(flags: DecideFlags) -> int:
    """Decide on the call on stdin and print the answer; return the exit code. Raises nothing: a failure blocks."""
    # The one boundary: whatever fails, clients only block on exit code 2.
    try:
        _check(flags.format_, stdin=flags.stdin)
        with _time_limit(SECONDS, as_json=flags.as_json):
            given = {"policy": flags.policy, "state_dir": flags.state_dir, "default_agent": flags.agent}
            answered = _decide(load_settings(given, config_file=flags.config).settings, flags.format_)
        said, code = FORMATS[flags.format_].answer(answered)
        sys.stdout.write(f"{said}\n" if said else "")
        sys.stdout.flush()
    except Exception as error:  # noqa: BLE001
        sys.stderr.write(_why(error, as_json=flags.as_json))
        if isinstance(error, BrokenPipeError):
            # stdout is closed: to flush it once more at exit would change the exit code.
            sys.stdout = io.StringIO()
        return BLOCK
    return code


def _check(format_: str, *, stdin: bool) -> None:
    if not stdin:
        raise ConfigError("give --stdin, and the call as JSON on stdin")
    if format_ not in FORMATS:
        raise ConfigError(f"there is no format {format_!r}; known are {', '.join(FORMATS)}")


def _why(error: Exception, *, as_json: bool) -> str:
    said = f"Interlock cannot decide on this call, so it is blocked: {error}"
    if not as_json:
        return f"{printable_lines(said)}\n"
    from proxy.commands.terminal import error_object, format_json  # noqa: PLC0415  imports rich, which is slow

    return f"{format_json(error_object(said))}\n"


@contextmanager
def _time_limit(seconds: float, *, as_json: bool) -> Iterator[None]:
    def late(*_: object) -> NoReturn:
        # At once: an exception here would be raised in the middle of anything, and the gate answers exceptions.
        os.write(2, _why(TimeoutError(f"it took more than {seconds:g} seconds"), as_json=as_json).encode())
        os._exit(BLOCK)

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _decide(settings: Settings, format_: str) -> Answered:
    log_setup.configure("error", settings.log_format)
    # As in `interlock run`: who requires tokens must not get unauthenticated calls through a side door.
    if settings.agent_auth == "required":
        raise ConfigError("setting agent_auth = 'required': a hook cannot prove who calls")
    sent = sys.stdin.buffer.read(MAX_INPUT + 1)
    if len(sent) > MAX_INPUT:
        raise ConfigError(f"stdin has more than {MAX_INPUT} bytes")
    asked = FORMATS[format_].read(parse(sent.decode("utf-8")))
    return asyncio.run(_ask(settings, asked))


async def _ask(settings: Settings, asked: Asked) -> Answered:
    preloaded = preload(settings)
    log = open_run_log(settings, asks=False)
    audit = AuditPipeline(settings, log, adopts_all=False)
    database = open_database(settings.postgres, settings.state_dir)
    marks = open_marks(settings, database)
    flows = OpenFlows(preloaded.policy.current, marks, flow_key(settings, os.environ))
    services = open_services(settings)
    try:
        gate = Gate(
            policy=lambda: HookPolicy(preloaded.policy.current()),
            redactor=preloaded.masker,
            sink=audit.sink,
            body_limit=settings.body_limit,
            limits=CallLimits(open_limits(settings, database)),
            halts=read_halts(settings.state_dir),
            flows=flows,
            services=services,
        )
        agent = asked.agent or settings.default_agent
        context = Context(Principal(agent), asked.server, transport="hook", session=asked.session)
        verdict = await gate.requests.inspect(_message(asked), context)
        gate.threads.close()
        return _answered(verdict)
    finally:
        if services is not None:
            await services.close()
        await marks.close()
        await database.close()
        await asyncio.to_thread(audit.close)


class HookPolicy:
    """A policy for calls that cannot be changed or proposed: what would be masked or has two phases is denied."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.version = policy.version
        self.pins = policy.pins
        self.could_allow = policy.could_allow
        self.governs = policy.governs
        self.offers_tasks = policy.offers_tasks
        self.offers_task = policy.offers_task
        self.unmatched = policy.unmatched
        self.incoming = policy.incoming

    def decide(self, call: Call) -> Decision:
        return self._strict(self._policy.decide(call))

    def decide_beyond(self, call: Call, used: Mapping[str, int]) -> Decision:
        return self._strict(self._policy.decide_beyond(call, used))

    def _strict(self, decision: Decision) -> Decision:
        strict = partial(replace, action="deny")
        redactions = tuple(strict(each) if each.action == "mask" else each for each in decision.redactions)
        decision = replace(decision, redactions=redactions)
        if decision.outcome is Outcome.TWO_PHASE:
            why = "Policy wants a proposal first, and a client's own tools have none"
            return replace(decision, outcome=Outcome.DENY, reason="two_phase_required", message=why, terms=None)
        return decision


def _message(asked: Asked) -> bytes:
    params = {"name": asked.tool, "arguments": asked.arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def _answered(verdict: Verdict) -> Answered:
    """Return what a verdict says. Raises where it is neither to forward nor to refuse."""
    match verdict:
        case Forward(in_flight=in_flight):
            decision = in_flight.decision
            return Answered(True, decision.reason, decision.rule, in_flight.call_id)
        case Answer(replies=(reply,)):
            return _refused(reply)
        case _:
            raise ConfigError("the call is not one that can be decided on")


def _refused(reply: object) -> Answered:
    shown = json.loads(json.dumps(reply))
    denial = shown["result"]["_meta"]["mcp-interlock/denial"] if "result" in shown else shown["error"]["data"]
    text = shown["result"]["content"][0]["text"] if "result" in shown else shown["error"]["message"]
    return Answered(False, denial["reason"], denial["rule"], denial["audit_id"], text)
