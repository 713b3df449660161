"""Logging with structlog, for our lines and mitmproxy's: JSON for machines, text for people."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import orjson

from proxy.system.console_lines import format_line
from proxy.system.lean_imports import without

with without("rich"):  # its tracebacks show local variables, and so secrets
    import structlog

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    from structlog.typing import Processor

DEFAULT_WIDTH = 80
NOISY = ("mitmproxy", "asyncio", "hpack", "uvicorn", "httpx2", "httpcore2")
# A logger keeps the first configuration that it writes with. A process has one; tests have many and switch this off.
KEEP_LOGGERS = True
_WORKER: dict[str, int] = {}
_AS_JSON_DOES = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


def silence() -> None:
    """Keep log lines out of a command's output: a command that fails prints one error message."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def name_worker(number: int) -> None:
    """Add the worker's number to every line of this process."""
    _WORKER["worker"] = number


def configure(level: str = "info", log_format: str = "auto") -> None:
    """Send every log line to stderr in one format."""
    as_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
    shared: list[Processor] = [
        _add_worker,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    final: Processor = _encode
    if not as_json:
        final = _console_line
    handler = logging.StreamHandler(sys.stderr)
    format_line = structlog.stdlib.ProcessorFormatter
    handler.setFormatter(format_line(foreign_pre_chain=shared, processors=[format_line.remove_processors_meta, final]))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    # The supervisor reports a port in use itself, and says what to do.
    logging.getLogger("mitmproxy.addons.proxyserver").setLevel(logging.CRITICAL)
    # Our own lines bypass the standard library's logging: there is one for each decision, and it is slow.
    structlog.configure(
        processors=[_stamp, final],
        logger_factory=_Lines,
        wrapper_class=_bound_logger(level.upper(), as_json=as_json),
        cache_logger_on_first_use=KEEP_LOGGERS,
    )


def _bound_logger(level: str, *, as_json: bool) -> type[Any]:
    """Return the logger class: structlog's own, with a shorter path for JSON lines of level info (decisions)."""
    filtering = structlog.make_filtering_bound_logger(level)
    if not as_json or logging.getLevelNamesMapping()[level] > logging.INFO:
        return filtering
    return type("BoundLogger", (filtering,), {"info": _info})


def _info(bound: Any, event: str, **said: Any) -> None:
    if "exc_info" in said:  # formatting waits, and the current exception is known only now
        bound._proxy_to_logger("info", event, **said)  # noqa: SLF001  structlog's interface for subclasses
        return
    logger = bound._logger  # noqa: SLF001
    line = bound._context | said if bound._context else said  # noqa: SLF001
    line["event"] = event
    logger.take(line, time.time())


def _add_worker(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    line.update(_WORKER)
    return line


def _stamp(
    logger: Any, method: str, line: MutableMapping[str, Any], now: float | None = None
) -> MutableMapping[str, Any]:
    now = time.time() if now is None else now
    seconds = int(now)
    line.update(_WORKER)
    line["logger"] = logger.name
    line["level"] = method
    line["timestamp"] = f"{_second(seconds)}.{int((now - seconds) * 1_000_000):06}Z"
    return line


@functools.lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _console_line(logger: Any, method: str, line: MutableMapping[str, Any]) -> str:
    """Return a line as text for people, no wider than their terminal where it is a decision."""
    if "exc_info" in line:
        line = structlog.processors.format_exc_info(logger, method, line)
    if not sys.stderr.isatty():
        return format_line(line)
    # Asked each time: the window may have changed since.
    width = os.get_terminal_size(sys.stderr.fileno()).columns or DEFAULT_WIDTH
    colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return format_line(line, width, colours=colours)


def _encode(logger: Any, method: str, line: MutableMapping[str, Any]) -> str:
    """Return a line as JSON in ASCII, whatever the encoding of stderr."""
    if "exc_info" in line:
        line = structlog.processors.format_exc_info(logger, method, line)
    try:
        encoded = orjson.dumps(line, repr, _AS_JSON_DOES)
    except TypeError:  # an integer or character that orjson rejects
        return json.dumps(line, default=repr)
    return encoded.decode() if encoded.isascii() else json.dumps(line, default=repr)


class _Pending(threading.local):
    """Lines of this thread that wait for the end of the event loop's iteration."""

    def __init__(self) -> None:
        self.lines: list[str | tuple[_Lines, dict[str, Any], float]] = []
        self.gathering = False


@contextlib.contextmanager
def gathered_lines() -> Iterator[None]:
    """Write the lines of level info that this thread logs in the block all at once, at its end."""
    pending = _Lines._pending  # noqa: SLF001  its own module
    pending.gathering = True
    try:
        yield
    finally:
        pending.gathering = False
        if pending.lines:
            _Lines()._write()  # noqa: SLF001


class _Lines:
    """Writes the lines of one logger to stderr.

    Lines of level info, one for each decision, are encoded and written once per iteration of the event loop: each write
    releases the interpreter lock to another thread, and a call would wait for it. All other lines are written
    immediately, after those that wait.
    """

    _pending = _Pending()

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._stream = sys.stderr

    def take(self, line: dict[str, Any], now: float) -> None:
        """Encode and write one line at the end of the iteration; its values must not change before."""
        self._later((self, line, now))

    def info(self, line: str) -> None:
        self._later(line)

    def msg(self, line: str) -> None:
        self._pending.lines.append(line)
        self._write()

    def _later(self, line: str | tuple[_Lines, dict[str, Any], float]) -> None:
        lines = self._pending.lines
        lines.append(line)
        if self._pending.gathering:
            return
        loop = asyncio._get_running_loop()  # noqa: SLF001  the public function raises if there is none
        if loop is None:
            self._write()
        elif len(lines) == 1:
            loop.call_soon(self._write)

    def _write(self) -> None:
        pending = self._pending
        lines, pending.lines = pending.lines, []
        if lines:
            encoded = [line if isinstance(line, str) else self._encode_info(*line) for line in lines]
            try:
                self._stream.write("\n".join(encoded) + "\n")
                self._stream.flush()
            except (OSError, ValueError):  # stderr is closed: the proxy must not stop for that
                return

    @staticmethod
    def _encode_info(logger: _Lines, line: dict[str, Any], now: float) -> str:
        return _encode(logger, "info", _stamp(logger, "info", line, now))

    debug = warning = warn = error = critical = exception = fatal = log = msg
