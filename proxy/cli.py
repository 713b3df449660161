"""The `interlock` command: where it starts, and how errors are printed."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from proxy.commands.run_flags import (
    DecideFlags,
    RunFlags,
    parse_decide_flags,
    parse_run_flags,
    with_optional_value,
)
from proxy.errors import InterlockError
from proxy.system import gc_tuning, import_cache
from proxy.system.needs_linux import why_not_here

EXIT_ERROR = 1
EXIT_BLOCK = 2


def main() -> None:
    """Run the command line. An error prints one message and exits with code 1, never with a traceback."""
    try:
        try:
            _call(sys.argv[1:])
        finally:
            sys.stdout.flush()
    except InterlockError as error:
        _complain(str(error))
    except BrokenPipeError:
        # `interlock audit query | head`: Python would flush stdout again at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_ERROR)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _complain(f"{where}{error.strerror or error}; check that the path exists and is accessible, or give another")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    # The one boundary for bugs: a traceback would print local values, and so secrets, into a terminal or log.
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        _complain(f"{type(error).__name__}: {error}; this is a bug: run it again with PYTHONDEVMODE=1 to see where")


def _call(words: list[str]) -> None:
    # MCP clients start a dozen of `interlock run`, and a hook for each call of their own tools, and wait: the plain
    # forms of these do without typer's imports.
    if (problem := why_not_here(words)) is not None:
        raise InterlockError(problem)
    if words[:1] == ["run"] and (run := parse_run_flags(words[1:])):
        sys.exit(_run_server(run))
    if words[:2] == ["policy", "decide"] and (decide := parse_decide_flags(words[2:])):
        sys.exit(_answer_hook(decide))
    from proxy.commands.command_tree import call  # noqa: PLC0415

    words = with_optional_value(words)
    sys.exit(call(words, as_json=_wants_json(words)))


def _run_server(flags: RunFlags) -> int:
    gc_tuning.pause_collection()  # until all is imported
    with import_cache.kept:
        from proxy.runtime.stdio_run import run_server  # noqa: PLC0415

    return run_server(flags)


def _answer_hook(flags: DecideFlags) -> int:
    gc_tuning.pause_collection()  # to the end: the process lives for one call
    try:
        with import_cache.kept:
            from proxy.runtime.hook_decision import answer_hook  # noqa: PLC0415
    # Half an installation, or one that is being replaced: clients block on this exit code alone.
    except Exception as error:  # noqa: BLE001
        sys.stderr.write(f"Interlock cannot decide on this call, so it is blocked: {error}\n")
        return EXIT_BLOCK
    return answer_hook(flags)


def _complain(message: str) -> NoReturn:
    from proxy.commands.terminal import print_error  # noqa: PLC0415  only needed for errors

    print_error(message, as_json=_wants_json(sys.argv[1:]))
    sys.exit(EXIT_ERROR)


def _wants_json(words: list[str]) -> bool:
    # From the words themselves: a command line that cannot be parsed has no options yet. After `--` they are others'.
    return "--json" in words[: words.index("--") if "--" in words else None]


if __name__ == "__main__":
    main()
