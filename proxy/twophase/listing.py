"""The two tools that stand for a two-phase one: their names, and how they are described. Pure, no I/O.

`transfer_funds` is listed as `transfer_funds_propose` and `transfer_funds_commit`. Names follow from the tool's own
name and the server's other names alone, so every replica gives the same ones, and reads them back.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from proxy.twophase.tokens import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from proxy.core.model import JsonObject

type Phase = Literal["propose", "commit"]

PROPOSE: Final = "propose"
COMMIT: Final = "commit"
PHASE_SUFFIXES: Final = (PROPOSE, COMMIT)  # what the name of every phase ends with
EXTRA: Final = "_interlock"  # the argument that is for Interlock alone
PROPOSAL_ID: Final = "proposal_id"
COMMIT_TOKEN: Final = "commit_token"  # noqa: S105  an argument's name
# Some clients and models take names of up to 64 characters, MCP itself of up to 128.
SHORT: Final = 64
LONG: Final = 128
_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class Names:
    """What a tool's two phases are called."""

    propose: str
    commit: str

    def phase(self, name: str) -> Phase | None:
        """Say which phase `name` is, if either."""
        return "propose" if name == self.propose else "commit" if name == self.commit else None


def phase_names(tool: str, taken: Collection[str]) -> Names:
    """Name the phases of `tool` beside the server's own tools `taken`, no longer than clients take."""
    return next(names for names in _candidates(tool) if names.propose not in taken and names.commit not in taken)


def _candidates(tool: str) -> Iterator[Names]:
    limit = SHORT if len(tool) <= SHORT else LONG
    if len(f"{tool}_{PROPOSE}") <= limit:
        yield _names(tool)
    for number in itertools.count():
        # Of the tool's own name, so that no other tool's phases are called so.
        digest = hashlib.sha256(f"{number}:{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
        room = limit - len(f"_{digest}_{PROPOSE}")
        yield _names(f"{tool[:room]}_{digest}")


def _names(stem: str) -> Names:
    return Names(f"{stem}_{PROPOSE}", f"{stem}_{COMMIT}")


def read_name(name: str, known: Collection[str], is_governed: Callable[[str], bool]) -> tuple[Phase, str] | None:
    """Say which phase of which tool `name` stands for; None where it is a tool's own name.

    `known` are the names of the server's tools that were listed so far. Of a tool that was not,
    a name is taken for a phase by its ending alone, which executes nothing by itself.
    """
    if name in known or not name.endswith((f"_{PROPOSE}", f"_{COMMIT}")):
        return None
    for tool in (*known, name.rpartition("_")[0]):
        # Only the start of a shortened name is the tool's own.
        may_be = tool and name.startswith(tool[: SHORT // 2]) and is_governed(tool)
        if may_be and (phase := phase_names(tool, known).phase(name)) is not None:
            return phase, tool
    return None


def is_addressed(arguments: JsonObject | None) -> bool:
    """Return whether arguments hold what no tool takes, only a phase: something aside, or a token."""
    given = arguments or {}
    return isinstance(given.get(EXTRA), dict) or str(given.get(COMMIT_TOKEN)).startswith(f"{VERSION}.")


def propose_tool(tool: JsonObject, names: Names) -> JsonObject:
    """Describe the first phase: it plans, and changes nothing."""
    text = (
        f"First of two steps to run {tool['name']!r}, which policy lets run only as a proposal that is then committed. "
        f"Call this with the arguments you want {tool['name']!r} to run with. Nothing is executed: the plan is checked "
        f"and scored. Put in `{EXTRA}` the prompt you act on and two independent drafts of what you expect to come "
        f'out (candidate_outputs), so that it can be scored. Where the answer\'s status is "allowed", call '
        f"{names.commit!r} with exactly the same arguments, and proposal_id and commit_token from the answer, before "
        f'expires_at. Where it is "pending", a person has to approve: tell the user, and call this again later with '
        f'the same arguments. Where it is "blocked" or "rejected", do not commit; show the draft to the user.'
    )
    return {
        "name": names.propose,
        **_title_of(tool, "propose"),
        "description": _described(text, tool),
        "inputSchema": _with_properties(tool.get("inputSchema"), {EXTRA: _ASIDE_SCHEMA}),
        "annotations": {**_title_of(tool.get("annotations"), "propose"), **_HARMLESS},
        **({"icons": tool["icons"]} if "icons" in tool else {}),
    }


def commit_tool(tool: JsonObject, names: Names) -> JsonObject:
    """Describe the second phase: it does what the tool does, with the tool's own annotations."""
    text = (
        f"Second of two steps: runs {tool['name']!r}, once, as proposed. First call {names.propose!r}; then call this "
        f"with exactly the same arguments, and with the proposal_id and commit_token of its answer. A token works one "
        f"time, until it expires, for these very arguments; anything else is refused."
    )
    kept = {key: value for key, value in tool.items() if key not in ("outputSchema", "title", "description")}
    annotations = tool.get("annotations")
    return {
        **kept,
        "name": names.commit,
        **_title_of(tool, "commit"),
        "description": _described(text, tool),
        "inputSchema": _commit_schema(tool.get("inputSchema")),
        **({"annotations": annotations | _title_of(annotations, "commit")} if isinstance(annotations, dict) else {}),
    }


def _commit_schema(schema: Any) -> JsonObject:
    """Add the two token fields; inside `_interlock` where the tool has arguments of these names itself."""
    own = schema.get("properties") if isinstance(schema, dict) else None
    if isinstance(own, dict) and not {PROPOSAL_ID, COMMIT_TOKEN}.isdisjoint(own):
        nested = {"type": "object", "properties": _TOKEN_FIELDS, "required": list(_TOKEN_FIELDS)}
        return _with_properties(schema, {EXTRA: nested}, required=(EXTRA,))
    return _with_properties(schema, _TOKEN_FIELDS, required=tuple(_TOKEN_FIELDS))


def _with_properties(schema: Any, added: JsonObject, required: tuple[str, ...] = ()) -> JsonObject:
    schema = schema if isinstance(schema, dict) else {"type": "object"}
    properties, wanted = schema.get("properties"), schema.get("required")
    made = {**schema, "properties": {**(properties if isinstance(properties, dict) else {}), **added}}
    if required:
        made["required"] = [*(wanted if isinstance(wanted, list) else ()), *required]
    return made


def _described(text: str, tool: JsonObject) -> str:
    said = tool.get("description")
    return f"{text}\n\n{tool['name']}: {said}" if isinstance(said, str) and said else text


def _title_of(holder: Any, phase: str) -> JsonObject:
    title = holder.get("title") if isinstance(holder, dict) else None
    return {"title": f"{title} ({phase})"} if isinstance(title, str) and title else {}


_HARMLESS: Final = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
_ASIDE_SCHEMA: Final = {
    "type": "object",
    "description": "For Interlock, not for the tool: what the proposal is scored by.",
    "properties": {
        "prompt": {"type": "string", "description": "The instruction that you are acting on, word for word."},
        "candidate_outputs": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": 2,
            "maxItems": 2,
            "description": "Two drafts, made independently, of what you expect the tool to do and answer.",
        },
    },
}
_TOKEN_FIELDS: Final = {
    PROPOSAL_ID: {"type": "string", "description": "From the answer to the proposal."},
    COMMIT_TOKEN: {"type": "string", "description": "From the answer to the proposal. Works once."},
}
