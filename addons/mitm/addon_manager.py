"""Which addon hears of which event: looked up once for each kind, and not again for each event.

mitmproxy asks every addon for every event whether it has a method of that name, each time in a coroutine
of its own, and then once more for an `update` that no addon here wants. And it goes on where a hook raises.
Here a hook that raises ends its flow.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import fields
from typing import TYPE_CHECKING, Any, cast

from mitmproxy import exceptions
from mitmproxy.addonmanager import AddonManager, traverse
from mitmproxy.flow import Flow
from mitmproxy.hooks import UpdateHook
from mitmproxy.http import HTTPFlow
from mitmproxy.master import Master

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mitmproxy.hooks import Hook
    from mitmproxy.options import Options

    type Hearer = Callable[..., Awaitable[None] | None]

log = logging.getLogger("interlock.hooks")


class HookTable(AddonManager):
    """mitmproxy's addon manager with a table of who hears what."""

    def __init__(self, master: Master) -> None:
        super().__init__(master)
        self._hearers: dict[str, tuple[Hearer, ...]] = {}
        self._names: dict[type[Hook], tuple[str, ...]] = {}

    def register(self, addon: Any) -> Any:
        """Take an addon in, and look everything up anew."""
        self._hearers = {}
        return super().register(addon)

    def add(self, *addons: Any) -> None:
        """Add addons at the end, and look everything up anew."""
        super().add(*addons)
        self._hearers = {}

    def remove(self, addon: Any) -> None:
        """Let an addon go, and look everything up anew."""
        super().remove(addon)
        self._hearers = {}

    def clear(self) -> None:
        """Let all addons go."""
        super().clear()
        self._hearers = {}

    def hearers(self, name: str) -> tuple[Hearer, ...]:
        """Return who is to be told of events of this name, in their order."""
        known = self._hearers.get(name)
        if known is None:
            found = [getattr(each, name, None) for addon in self.chain for each in traverse([addon])]
            known = self._hearers[name] = tuple(one for one in found if callable(one))
        return known

    def args(self, event: Hook) -> list[Any]:
        """Return what hearers are told; its names are looked up once for each kind of event."""
        names = self._names.get(type(event))
        if names is None:
            names = self._names[type(event)] = tuple(field.name for field in fields(cast("Any", event)))
        return [getattr(event, name) for name in names]

    def tell(self, event: Hook, args: list[Any]) -> Awaitable[None] | None:
        """Tell of `event`, as far as that goes without waiting; return what is left to wait for, if anything is."""
        hearers = self.hearers(event.name)
        for place, hear in enumerate(hearers):
            try:
                waiting = hear(*args)
            except exceptions.AddonHalt:
                break
            except Exception as error:  # noqa: BLE001  the boundary of every hook
                _failed(event, args, error)
                continue
            if waiting is not None and inspect.isawaitable(waiting):
                return self._tell_rest(event, args, waiting, hearers[place + 1 :])
        return self._tell_of_update(event, args)

    async def _tell_rest(
        self, event: Hook, args: list[Any], waiting: Awaitable[None], others: tuple[Hearer, ...]
    ) -> None:
        try:
            await waiting
        except exceptions.AddonHalt:
            others = ()
        except Exception as error:  # noqa: BLE001  the boundary of every hook
            _failed(event, args, error)
        for hear in others:
            try:
                more = hear(*args)
                if more is not None and inspect.isawaitable(more):
                    await more
            except exceptions.AddonHalt:
                break
            except Exception as error:  # noqa: BLE001  the boundary of every hook
                _failed(event, args, error)
        update = self._tell_of_update(event, args)
        if update is not None:
            await update

    def _tell_of_update(self, event: Hook, args: list[Any]) -> Awaitable[None] | None:
        if not self.hearers(UpdateHook.name) or isinstance(event, UpdateHook):
            return None
        if not args or not isinstance(args[0], Flow):
            return None
        update = UpdateHook([args[0]])
        return self.tell(update, self.args(update))

    async def handle_lifecycle(self, event: Hook) -> None:
        """Tell of `event`, and wait until everybody has done with it."""
        waiting = self.tell(event, self.args(event))
        if waiting is not None:
            await waiting


class Embedded(Master):
    """mitmproxy's Master with a table of hooks, and without a second formatting of every log line."""

    def __init__(self, options: Options) -> None:
        super().__init__(options, with_termlog=False)
        self.options.changed.disconnect(self.addons._configure_all)  # noqa: SLF001  what its own __init__ connected
        self.addons = HookTable(self)
        self._legacy_log_events.uninstall()


def _failed(event: Hook, args: list[Any], error: Exception) -> None:
    """Let nothing go on that a hook failed on."""
    log.error("a hook failed: %s", event.name, exc_info=error)
    flow = args[0] if args else None
    if isinstance(flow, Flow) and flow.killable:
        flow.kill()
    if isinstance(flow, HTTPFlow) and flow.websocket is not None:
        for message in flow.websocket.messages[-1:]:
            message.drop()  # the layer asks for this alone, not whether the flow was killed
