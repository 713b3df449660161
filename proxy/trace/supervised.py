"""Writes what a supervisor carried out as strace would have: strace does not see calls that a supervisor answers.

The kernel takes the strictest of all filters' answers, and a supervisor's comes before a tracer's. So these lines go
into the same pipe, in the order in which things happened.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from proxy.sandbox.notify_acts import AT_REMOVEDIR, CALLS

if TYPE_CHECKING:
    from proxy.sandbox.notify_acts import Act

FLAGS: Final = {
    name: getattr(os, name)
    for name in ("O_CREAT", "O_EXCL", "O_TRUNC", "O_APPEND", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC")
}
MODES: Final = {os.O_RDONLY: "O_RDONLY", os.O_WRONLY: "O_WRONLY", os.O_RDWR: "O_RDWR"}
O_TMPFILE: Final = getattr(os, "O_TMPFILE", 0)
# How strace writes each function of the supervisor; a call that changes nothing that is observed is left out.
WRITTEN: Final = {
    "rename": "rename({0}, {1})",
    "hard_link": "link({0}, {1})",
    "link_to": 'symlink("", {0})',
    "make_folder": "mkdir({0}, 0700)",
    "make_node": "mknod({0}, 0600)",
    "truncate": "truncate({0}, 0)",
    "chmod": "chmod({0}, 0600)",
    "chown": "chown({0}, 0, 0)",
}
# Of a path; the kernel writes a line of up to 4096 bytes in one piece, and it may have two.
MAX_SHOWN: Final = 1500


def trace_line(act: Act, time: float) -> str | None:
    """Return strace's line for an act, without its end; None where it would have none."""
    told = _call(act)
    return f"{act.thread} {time:.6f} {told} = {_result(act)}" if told is not None else None


def _call(act: Act) -> str | None:
    paths = [_quote(path) for path in act.paths]
    function = CALLS.get(act.call, ("", ""))[0]
    if function == "open":
        return f"openat(AT_FDCWD</>, {paths[-1]}, {_flags(act.flags)})" if paths else None
    if function == "unlink":
        return f"{'rmdir' if act.flags & AT_REMOVEDIR else 'unlink'}({paths[0]})" if paths else None
    if function in WRITTEN:
        form = WRITTEN[function]
        return form.format(*paths) if len(paths) > form.count("{") - 1 else None
    return f"{'unshare' if act.call == 'clone' else act.call}(0)" if act.denied else None


def _flags(flags: int) -> str:
    names = [MODES.get(flags & os.O_ACCMODE, "O_RDWR"), *(name for name, bit in FLAGS.items() if flags & bit)]
    return "|".join([*names, "O_TMPFILE"] if flags & O_TMPFILE == O_TMPFILE else names)


def _result(act: Act) -> str:
    if act.error:
        name = errno.errorcode.get(act.error, "EACCES")
        injected = " (INJECTED)" if act.call.startswith("io_uring") else ""
        return f"-1 {name} ({os.strerror(act.error)}){injected}"
    # The number of the descriptor is not known before the program has it; the path is what counts.
    path = _escape(act.paths[-1]) if act.paths and CALLS[act.call][0] == "open" else ""
    return f"0<{path}>" if 0 < len(path) <= MAX_SHOWN else "0"


def _quote(path: str) -> str:
    text = _escape(path)
    return f'"{text}"' if len(text) <= MAX_SHOWN else f'"{text[:MAX_SHOWN]}"...'


def _escape(path: str) -> str:
    return "".join(
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\<>' else f"\\{byte:03o}" for byte in os.fsencode(path)
    )
