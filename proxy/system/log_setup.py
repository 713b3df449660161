"""Logging: structlog for our lines and mitmproxy's, JSON for machines and colours for people."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import orjson

from proxy.system.lean_imports import without

with without("rich"):  # for tracebacks that show local variables, secrets among them: they are never used
    import structlog

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from structlog.typing import Processor

NOISY = ("mitmproxy", "asyncio", "hpack", "uvicorn")
_WORKER: dict[str, int] = {}
_AS_JSON_DOES = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


def hush() -> None:
    """Keep log lines out of a command's output: what fails is its one error message."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def name_worker(number: int) -> None:
    """Have every line of this process say which worker wrote it."""
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
    final: Processor = _spell if as_json else _console_renderer()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, final],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    # The daemon says itself, and with its own way out, when it cannot listen.
    logging.getLogger("mitmproxy.addons.proxyserver").setLevel(logging.CRITICAL)
    # Our own lines, one for each decision, do not take the way through the standard library's logging.
    structlog.configure(
        processors=[_stamp, final],
        logger_factory=_Lines,
        wrapper_class=_bound_logger(level.upper(), as_json=as_json),
        cache_logger_on_first_use=True,
    )


def _bound_logger(level: str, *, as_json: bool) -> type[Any]:
    """Get the class of loggers: structlog's own, but JSON of level info, as decisions are, is written in one step."""
    filtering = structlog.make_filtering_bound_logger(level)
    if not as_json or logging.getLevelNamesMapping()[level] > logging.INFO:
        return filtering
    return type("BoundLogger", (filtering,), {"info": _info})


def _info(bound: Any, event: str, **said: Any) -> None:
    if "exc_info" in said:  # which exception is meant is known now alone
        bound._proxy_to_logger("info", event, **said)  # noqa: SLF001  as structlog says of its wrappers
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
    """Complete one of our own lines."""
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


def _spell(logger: Any, method: str, line: MutableMapping[str, Any]) -> str:
    """Return a line as JSON, in ASCII whatever stderr takes."""
    if "exc_info" in line:
        line = structlog.processors.format_exc_info(logger, method, line)
    try:
        encoded = orjson.dumps(line, repr, _AS_JSON_DOES)
    except TypeError:  # an integer or a character that it does not take
        return json.dumps(line, default=repr)
    return encoded.decode() if encoded.isascii() else json.dumps(line, default=repr)


def _spell_info(logger: _Lines, line: dict[str, Any], now: float) -> str:
    return _spell(logger, "info", _stamp(logger, "info", line, now))


class _Gathered(threading.local):
    """Lines that wait for the end of the event loop's turn in this thread."""

    def __init__(self) -> None:
        self.lines: list[str | tuple[_Lines, dict[str, Any], float]] = []


class _Lines:
    """Writes lines to stderr, for a logger of some name.

    Those of level info, one for each decision, are written once a turn of the event loop: each write lets another
    thread in, and a call would wait for that; JSON is spelt then, too, which is cheaper for many than for each. All
    others are written at once, behind those that wait.
    """

    _gathered = _Gathered()

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._stream = sys.stderr

    def take(self, line: dict[str, Any], now: float) -> None:
        """Spell and write one line when the turn ends; nobody changes what is in it before."""
        self._later((self, line, now))

    def info(self, line: str) -> None:
        """Write one line when the turn ends."""
        self._later(line)

    def msg(self, line: str) -> None:
        """Write one line."""
        self._gathered.lines.append(line)
        self._write()

    def _later(self, line: str | tuple[_Lines, dict[str, Any], float]) -> None:
        lines = self._gathered.lines
        lines.append(line)
        loop = asyncio._get_running_loop()  # noqa: SLF001  the other way to ask raises where there is none
        if loop is None:
            self._write()
        elif len(lines) == 1:
            loop.call_soon(self._write)

    def _write(self) -> None:
        gathered = self._gathered
        lines, gathered.lines = gathered.lines, []
        if lines:
            encoded = [line if isinstance(line, str) else _spell_info(*line) for line in lines]
            try:
                self._stream.write("\n".join(encoded) + "\n")
                self._stream.flush()
            except (OSError, ValueError):  # nobody reads it any more
                return

    debug = warning = warn = error = critical = exception = fatal = log = msg


def _console_renderer() -> Processor:
    # The default traceback shows local variables, arguments and secrets among them.
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
