"""`interlock halts`: lists what is halted."""

from __future__ import annotations

from proxy.commands.halt_control import HaltOptions
from proxy.commands.options import AsJson, takes
from proxy.commands.terminal import print_json_lines, print_table, printable
from proxy.commands.time_format import format_time

EPILOG = "Example:  interlock halts --json"


@takes(HaltOptions)
def halts(options: HaltOptions, as_json: AsJson = False) -> None:  # noqa: FBT002
    """List what is halted: since when, by whom and why."""
    found = options.ask(lambda button: button.in_force())
    if as_json:
        print_json_lines(found)
        return
    rows = [
        (
            printable(one["halt_id"]),
            printable(one["scope"]) + (" (cut)" if one["cut"] else ""),
            format_time(one["created_at"]),
            printable(one["operator"]),
            printable(one["reason"]),
        )
        for one in found
    ]
    print_table(("halt", "halted", "since", "by", "reason"), rows, "Nothing is halted.")
