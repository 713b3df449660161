"""`interlock policy decide`: answers the hook of a client that asks before it uses one of its own tools."""

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
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from proxy.agent.hook_formats import BLOCK, FORMATS, Answered, Asked, parse
from proxy.commands.options import ConfigFile, StateDir
from proxy.commands.terminal import printable_lines
from proxy.config import Settings, load_settings
from proxy.core.model import Answer, Call, Context, Decision, Forward, Outcome, Principal, Verdict
from proxy.errors import ConfigError
from proxy.system import log_setup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.core.interfaces import Policy

EPILOG = "Example:  interlock policy decide --stdin --format claude-code"
MAX_INPUT = 1 << 24
# Less than clients wait for a hook: one that takes longer is ended, and in older versions the call then passes.
SECONDS = 30


def decide(
    *,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the call from stdin.")] = False,
    format_: Annotated[str, typer.Option("--format", help=f"Who asks: {', '.join(FORMATS)}.")] = "plain",
    agent: Annotated[str | None, typer.Option(help="The agent's name; default: default_agent.")] = None,
    policy: Annotated[Path | None, typer.Option(help=Settings.model_fields["policy"].description)] = None,
    state_dir: StateDir = None,
    config: ConfigFile = None,
) -> None:
    """Decide on one call of a client's own tools, as a client's hook, and record it.

    Reads the call as JSON from stdin and answers in the client's format. The same policy decides as
    for MCP; the audit trail has the call with transport `hook`. A call that needs masking or two
    phases is denied: a hook can do neither. `interlock setup --hooks` installs it.

    Exit code: as the client expects it. plain: 0 allow, 2 deny. claude-code and cursor: 0, and the
    answer on stdout. 2 for every failure: clients then block the call.
    """
    # The one boundary: whatever fails, clients only block on exit code 2.
    try:
        _check(format_, stdin=stdin)
        with _time_limit(SECONDS):
            flags = {"policy": policy, "state_dir": state_dir, "default_agent": agent}
            answered = _decide(load_settings(flags, config_file=config).settings, format_)
        said, code = FORMATS[format_].answer(answered)
        sys.stdout.write(f"{said}\n" if said else "")
        sys.stdout.flush()
    except Exception as error:  # noqa: BLE001
        sys.stderr.write(_why(error))
        if isinstance(error, BrokenPipeError):
            # stdout is closed: to flush it once more at exit would change the exit code.
            sys.stdout = io.StringIO()
        code = BLOCK
    raise typer.Exit(code)


def _check(format_: str, *, stdin: bool) -> None:
    if not stdin:
        raise ConfigError("give --stdin, and the call as JSON on stdin")
    if format_ not in FORMATS:
        raise ConfigError(f"there is no format {format_!r}; known are {', '.join(FORMATS)}")


def _why(error: Exception) -> str:
    return f"Interlock cannot decide on this call, so it is blocked: {printable_lines(error)}\n"


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def late(*_: object) -> NoReturn:
        # At once: an exception here would be raised in the middle of anything, and the gate answers exceptions.
        os.write(2, _why(TimeoutError(f"it took more than {seconds:g} seconds")).encode())
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
    from proxy.audit.local_log_files import RunLog  # noqa: PLC0415  slow to import, not needed for --help
    from proxy.audit.pipeline import AuditPipeline  # noqa: PLC0415
    from proxy.gate.gate import Gate  # noqa: PLC0415
    from proxy.runtime.wiring import preload  # noqa: PLC0415

    preloaded = preload(settings)
    log = RunLog(settings.state_dir, max_bytes=settings.audit_log_limit)
    audit = AuditPipeline(settings, log, adopts_all=False)
    try:
        gate = Gate(
            policy=lambda: HookPolicy(preloaded.policy.current()),
            redactor=preloaded.masker,
            sink=audit.sink,
            body_limit=settings.body_limit,
        )
        agent = asked.agent or settings.default_agent
        context = Context(Principal(agent), asked.server, transport="hook", session=asked.session)
        verdict = await gate.requests.inspect(_message(asked), context)
        gate.threads.close()
        return _answered(verdict)
    finally:
        await asyncio.to_thread(audit.close)


class HookPolicy:
    """A policy for calls that cannot be changed or proposed: what would be masked or has two phases is denied."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.version = policy.version
        self.pins = policy.pins
        self.incoming = policy.incoming
        self.could_allow = policy.could_allow
        self.governs = policy.governs
        self.unmatched = policy.unmatched

    def decide(self, call: Call) -> Decision:
        decision = self._policy.decide(call)
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
