"""mitmproxy's master and addon manager, except that a hook that raises ends its flow.

For safety: mitmproxy logs the exception and forwards the flow as if the hook had allowed it. A gate that fails
must refuse. Unnecessary once mitmproxy has a way to say what becomes of a flow whose hook failed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from mitmproxy import exceptions
from mitmproxy.addonmanager import AddonManager
from mitmproxy.flow import Flow
from mitmproxy.http import HTTPFlow
from mitmproxy.master import Master

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mitmproxy.hooks import Hook
    from mitmproxy.options import Options

log = logging.getLogger("interlock.hooks")


class FailClosedAddonManager(AddonManager):
    """mitmproxy's addon manager that ends a flow whose hook raises."""

    async def trigger_event(self, event: Hook) -> None:
        """Run the hooks of all addons, in their order."""
        for addon in self.chain:
            try:
                await self.invoke_addon(addon, event)
            except exceptions.AddonHalt:
                return
            except Exception as error:  # noqa: BLE001  the boundary of every hook
                end_flow(event, event.args(), error)


class InterlockMaster(Master):
    """mitmproxy's Master with another addon manager."""

    def __init__(self, options: Options, addon_manager: type[AddonManager] = FailClosedAddonManager) -> None:
        super().__init__(options, with_termlog=False)
        # mitmproxy's own __init__ connected its manager; two of them would configure every addon twice.
        self.options.changed.disconnect(self.addons._configure_all)  # noqa: SLF001
        self.addons = addon_manager(self)
        # These would format each log line once more, for an `add_log` hook that no addon here has.
        self._legacy_log_events.uninstall()


def end_flow(event: Hook, args: Sequence[Any], error: Exception) -> None:
    """Log that a hook failed, and kill the flow that it was called for."""
    log.error("a hook failed: %s", event.name, exc_info=error)
    flow = args[0] if args else None
    if isinstance(flow, Flow) and flow.killable:
        flow.kill()
    if isinstance(flow, HTTPFlow) and flow.websocket is not None:
        for message in flow.websocket.messages[-1:]:
            message.drop()  # the WebSocket layer checks this alone, not whether the flow was killed
