"""What a local server did, as rules see it: one act in the words of a policy. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from proxy.core.model import JsonObject

type ActOutcome = Literal["tell", "withhold", "deny"]
# When an act was seen: before the first call was read, in a call, or in none.
type ActPhase = Literal["startup", "call", "ambient"]


class Act(NamedTuple):
    """One thing that a server did outside of itself, or tried to do. Equal acts are judged alike."""

    kind: str  # fs.read, fs.write, fs.delete, net.connect, net.dns, net.listen, ipc.unix, proc.exec, …
    action: str  # open, write, unlink, connect, …
    path: str | None = None
    host: str | None = None  # the address of a peer, or the name that was looked up
    port: int | None = None
    argv: tuple[str, ...] = ()
    error: str | None = None
    partial: bool = False  # whether the command line is longer than what was seen of it

    def shown(self) -> JsonObject:
        """Return the act as it is recorded."""
        values = {"act": self.kind, **self._asdict(), "argv": list(self.argv) or None, "partial": self.partial or None}
        return {name: value for name, value in values.items() if name != "kind" and value is not None}


class ActRule(NamedTuple):
    """A rule that an act has met."""

    rule: str
    outcome: ActOutcome
    shadow: bool
    message: str
