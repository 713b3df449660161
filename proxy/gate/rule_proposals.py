"""Answers agents that propose rules: the proxy itself is an MCP server with one tool, at a host that leads nowhere.

A proposal is checked and stored for people. Nothing here changes the policy.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from proxy.core.ids import new_id
from proxy.core.model import Answer, Decision, Kind, Outcome
from proxy.core.reasons import REASONS
from proxy.core.rule_proposals import HOST, TOOL, Room, RuleProposal
from proxy.errors import PolicyError, RuleProposalError
from proxy.wire.jsonrpc import serialise
from proxy.wire.mcp import MODERN, TOOLS_CALL
from proxy.wire.refusal_messages import AUDIT_META

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from proxy.core.interfaces import Policy, Redactor
    from proxy.core.model import Context, Json, JsonObject, Message
    from proxy.core.rule_proposals import RuleProposalStore
    from proxy.gate.event_recorder import EventRecorder
    from proxy.gate.gate import ReaderThreads
    from proxy.gate.refusal import CallState
    from proxy.policy.proposed_rule import CheckedRule

MAX_MESSAGE: Final = 64 << 10
MAX_WHY: Final = 500
ATTEMPTS: Final = 20  # of an agent in ATTEMPT_SECONDS, in each worker: checking a rule takes a processor for a while
ATTEMPT_SECONDS: Final = 60.0
MAX_AGENTS: Final = 1000
LEGACY: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
HINT: Final = (
    f"If your task needs it, propose a rule: call {TOOL} of the MCP server http://{HOST}/mcp; a person decides."
)
_ABOUT: Final = (
    "Proposes a rule for the policy that decides on your tool calls. A person reads it and decides; until then nothing "
    "changes, and a proposal that is refused changes nothing either. Propose the least that your task needs: name the "
    "tool, the server and the arguments."
)
_SERVER: Final[JsonObject] = {"name": "interlock", "version": "1"}
_FRESH: Final[JsonObject] = {"ttlMs": 0, "cacheScope": "private"}
_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "rule": {
            "type": "object",
            "description": "One rule as a policy file has it, such as "
            '{"id": "reader-notes", "action": "allow", "agents": ["reader"], "servers": ["files"], '
            '"tools": ["read_file"], "when": {"all": [{"arg": "path", "path_under": ["/srv/notes"]}]}, "tests": ['
            '{"call": {"agent": "reader", "server": "files", "tool": "read_file", '
            '"arguments": {"path": "/srv/notes/a"}}, "expect": "allow"}, '
            '{"call": {"agent": "reader", "server": "files", "tool": "read_file", '
            '"arguments": {"path": "/etc/passwd"}}, "expect": "no_match"}]}. '
            "An allow names you in agents. Tests are required.",
        },
        "why": {"type": "string", "maxLength": MAX_WHY, "description": "What it is for, in a sentence or two."},
    },
    "required": ["rule", "why"],
    "additionalProperties": False,
}


class RuleProposals:
    """Takes the rules that agents propose. One per process; use from one event loop."""

    def __init__(
        self,
        store: RuleProposalStore,
        check: Callable[[object, str, Collection[str]], CheckedRule],
        redactor: Redactor,
        recorder: EventRecorder,
        threads: ReaderThreads,
        *,
        clock: Callable[[], float] = time.time,
        room: Room | None = None,
    ) -> None:
        self._store = store
        self._check = check
        self._redactor = redactor
        self._recorder = recorder
        self._threads = threads
        self._clock = clock
        self._room = room or Room()
        self._attempts: dict[str, deque[float]] = {}

    async def take(self, message: Message, state: CallState, policy: Policy, halted: str | None) -> Answer:
        """Answer a message that is for us. Raises RuleProposalError where it is refused, and StoreUnavailableError."""
        if halted is not None:
            raise RuleProposalError("halted", halted)
        if is_proposal(message):
            assert state.call is not None
            state.decision = decision = policy.decide(state.call)
            # Operators switched this on: a rule can still deny it, and the policy's default does not.
            passes = decision.outcome in (Outcome.ALLOW, Outcome.TWO_PHASE)
            if not passes and decision.reason != "default_deny":
                why = decision.message if decision.rule else ""
                raise RuleProposalError(decision.reason, why or REASONS[decision.reason].meaning)
            return await self._propose(message, state, policy)
        answer = self._answer_handshake(message, state.context)
        if answer is None:
            raise RuleProposalError("only_rule_proposals", REASONS["only_rule_proposals"].meaning)
        state.decision = Decision(Outcome.ALLOW, "default_allow")
        await self._recorder.decided(state, quietly=True)
        return answer

    def is_here(self, context: Context) -> bool:
        """Return whether a message is for us."""
        return context.server == HOST and context.transport != "stdio"

    def _answer_handshake(self, message: Message, context: Context) -> Answer | None:
        """Return the answer to what clients send before they call a tool; None for all else."""
        if message.kind is not Kind.REQUEST:
            return Answer((), status=202)
        made: JsonObject | None = None
        match message.method:
            case "initialize":
                asked = message.params.get("protocolVersion")
                version = asked if asked in LEGACY else LEGACY[-1]
                made = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": _SERVER}
            case "server/discover":
                about = {"capabilities": {"tools": {}}, "serverInfo": _SERVER, "resultType": "complete"}
                made = {"supportedVersions": [MODERN, *reversed(LEGACY)], **about, **_FRESH}
            case "ping":
                made = {}
            case "tools/list":
                tool = {"name": TOOL, "description": _ABOUT, "inputSchema": _SCHEMA}
                made = {"tools": [tool]}
        return None if made is None else _answer(message, context, made)

    async def _propose(self, message: Message, state: CallState, policy: Policy) -> Answer:
        """Check and store a proposal, and answer it."""
        rule, why = self._read(state)
        agent = state.context.principal.agent
        self._count_attempt(agent)
        try:
            # In a thread: the rule may be as odd as an agent can make it.
            checked = await self._threads.run(MAX_MESSAGE, self._check, rule, agent, getattr(policy, "rules", ()))
        except PolicyError as error:
            raise RuleProposalError("bad_rule_proposal", str(error)) from None
        proposal = RuleProposal(
            proposal_id=new_id(),
            agent=agent,
            rule_id=checked.rule_id,
            text=checked.text,
            why=why,
            digest=checked.digest,
            call_id=state.call_id,
            policy_version=state.decision.policy_version if state.decision else "",
            created_at=self._clock(),
        )
        stored = await self._store.add(proposal, self._room)
        if stored is None:
            raise RuleProposalError("too_many_rule_proposals", "There is no room for another proposal of yours now.")
        state.recorded_reason = "rule_proposed"
        if stored.proposal_id == proposal.proposal_id:
            told = {"rule_proposal_id": stored.proposal_id, "proposed_rule": stored.rule_id, "digest": stored.digest}
            self._recorder.phased(state, "rule_proposed", told)
        await self._recorder.decided(state)
        return _answer(message, state.context, _taken(stored, checked.tests, state.call_id))

    def _read(self, state: CallState) -> tuple[JsonObject, str]:
        """Return the rule and what it is for. Raises RuleProposalError."""
        arguments = state.call.arguments if state.call is not None else None
        if state.length > MAX_MESSAGE or not state.is_small:
            raise RuleProposalError("bad_rule_proposal", f"the message has more than {MAX_MESSAGE} bytes")
        if not isinstance(arguments, dict) or arguments.keys() != {"rule", "why"}:
            raise RuleProposalError("bad_rule_proposal", "write rule and why, and nothing else")
        rule, why = arguments["rule"], arguments["why"]
        if not isinstance(rule, dict) or not isinstance(why, str) or not 0 < len(why.strip()) <= MAX_WHY:
            raise RuleProposalError(
                "bad_rule_proposal", f"rule is an object, and why a text of 1 to {MAX_WHY} characters"
            )
        # A mask would change what the rule means, and people would read the secret.
        if self._holds_secrets(arguments):
            raise RuleProposalError("secret_found", REASONS["secret_found"].meaning)
        return rule, why

    def _holds_secrets(self, value: Json) -> bool:
        return bool(self._redactor.mask(value, ("secrets",))[1])

    def _count_attempt(self, agent: str) -> None:
        now = self._clock()
        if agent not in self._attempts and len(self._attempts) >= MAX_AGENTS:
            self._attempts.clear()
        made = self._attempts.setdefault(agent, deque())
        while made and made[0] <= now - ATTEMPT_SECONDS:
            made.popleft()
        if len(made) >= ATTEMPTS:
            raise RuleProposalError("too_many_rule_proposals", "You have proposed too often in the last minute.")
        made.append(now)


def is_proposal(message: Message) -> bool:
    """Return whether a message is a call of our tool."""
    is_call = message.method == TOOLS_CALL and message.kind is Kind.REQUEST
    return is_call and message.params.get("name") == TOOL and message.params.get("task") is None


def _answer(message: Message, context: Context, result: JsonObject) -> Answer:
    modern: dict[str, Any] = {}
    if context.revision == MODERN:
        modern = {"resultType": "complete", **(_FRESH if "tools" in result else {})}
    return Answer(({"jsonrpc": "2.0", "id": message.id, "result": {**result, **modern}},))


def _taken(proposal: RuleProposal, tests: int, audit_id: str) -> JsonObject:
    said: JsonObject = {"status": "waiting", "proposal_id": proposal.proposal_id, "rule": proposal.rule_id}
    said["tests_passed"] = tests
    text = f"Proposed. {serialise(said).decode()} A person decides; nothing has changed. Tell the user, and go on."
    meta = {AUDIT_META: {"audit_id": audit_id}}
    return {"content": [{"type": "text", "text": text}], "structuredContent": said, "isError": False, "_meta": meta}
