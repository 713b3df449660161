"""A layer that goes on at once where a hook it waits for is done by the time that it was asked for.

mitmproxy's layers stop at every hook, and are told by an event of their own that it is done; the event passes
every layer on its way, four times for each call. Most hooks have nothing to wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mitmproxy.proxy import events
from mitmproxy.proxy.layer import Layer, Paused

if TYPE_CHECKING:
    from mitmproxy.proxy.commands import Command
    from mitmproxy.proxy.layer import CommandGenerator


class AtOnce(Layer):
    """Stops at a command that blocks, unless whoever carried it out says that it is `done` already."""

    def handle_event(self, event: events.Event) -> CommandGenerator[None]:
        """Take an event; keep it for later while an answer is waited for."""
        if self._paused is None:
            yield from self._run(self._handle_event(event))
        elif isinstance(event, events.CommandCompleted) and event.command is self._paused.command:
            generator, self._paused = self._paused.generator, None
            yield from self._run(generator, event.reply)
            while self._paused is None and self._paused_event_queue:
                yield from self._run(self._handle_event(self._paused_event_queue.popleft()))
        else:
            self._paused_event_queue.append(event)

    def _run(self, generator: CommandGenerator[None], reply: Any = None) -> CommandGenerator[None]:
        """Return the commands of what is under way, up to its end or to one that it has to wait for."""
        try:
            command = generator.send(reply)
            while True:
                if command.blocking is True:
                    command.blocking = self  # so that no layer around this one stops as well
                    self._paused = Paused(command, generator)
                    yield command
                    if command.blocking is self:
                        return
                    self._paused = None
                else:
                    yield command
                command = next(generator)
        except StopIteration:
            return


def done(command: Command) -> bool:
    """Say that `command` is done, while it is carried out; whether nobody needs to be told later."""
    if not isinstance(command.blocking, AtOnce):
        return False
    command.blocking = False
    return True


def is_done(command: Command) -> bool:
    """Return whether nobody waits for `command`, or nobody needs to any more."""
    return command.blocking is False
