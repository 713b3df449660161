"""The flags of `interlock run` and `interlock policy decide`, and parsers of their plain form.

Every MCP server of a client is one `interlock run`, every call of its own tools one `policy decide`, and the client
waits for them: importing typer would be a good part of the start. What is not written in the plain form is typer's:
help, completion and every error. Imports nothing but the standard library.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

COMPLETION = "_INTERLOCK_COMPLETE"


class RunFlags(NamedTuple):
    command: tuple[str, ...]
    server_name: str | None = None
    agent: str | None = None
    policy: Path | None = None
    trace: str | None = None
    state_dir: Path | None = None
    log_level: str | None = None
    config: Path | None = None
    sandbox: str | None = None  # a profile, `auto`, `require` or `require:PROFILE`
    as_json: bool = False  # log lines and errors; not in the plain form


class DecideFlags(NamedTuple):
    stdin: bool = False
    format_: str = "plain"
    agent: str | None = None
    policy: Path | None = None
    state_dir: Path | None = None
    config: Path | None = None
    as_json: bool = False  # errors; not in the plain form


def _named(fields: Iterable[str]) -> dict[str, str]:
    return {f"--{name.strip('_').replace('_', '-')}": name for name in fields}


_RUN: Final = _named(RunFlags._fields[1:-1])
_DECIDE: Final = _named(DecideFlags._fields[1:-1])
_STDIN: Final = "--stdin"


def parse_run_flags(words: Sequence[str]) -> RunFlags | None:
    """Parse `--NAME VALUE` or `--NAME=VALUE`, each at most once, then `--` and the server's command.

    Return None for anything else: a parser that knows every form has to read that.
    """
    if COMPLETION in os.environ or "--" not in words:
        return None
    end = words.index("--")
    given = _pairs(with_sandbox_value(words[:end]), _RUN)
    if given is None or not words[end + 1 :]:
        return None
    return RunFlags(
        tuple(words[end + 1 :]),
        server_name=given.get("server_name"),
        agent=given.get("agent"),
        policy=_path(given.get("policy")),
        trace=given.get("trace"),
        state_dir=_path(given.get("state_dir")),
        log_level=given.get("log_level"),
        config=_path(given.get("config")),
        sandbox=given.get("sandbox"),
    )


def with_sandbox_value(words: Sequence[str]) -> list[str]:
    """Return words in which a `--sandbox` without a value has one: `auto`."""
    return [
        f"{word}=auto" if word == "--sandbox" and (not after or after.startswith("-")) else word
        for word, after in zip(words, [*words[1:], ""], strict=True)
    ]


def with_optional_value(words: list[str]) -> list[str]:
    """Return a command line in which the `--sandbox` of `run` and `wrap` has a value; typer knows no optional ones."""
    if words[:1] not in (["run"], ["wrap"]):
        return words
    end = words.index("--") if "--" in words else len(words)
    return [*with_sandbox_value(words[:end]), *words[end:]]


def parse_decide_flags(words: Sequence[str]) -> DecideFlags | None:
    """Parse `--stdin` and then `--NAME VALUE` or `--NAME=VALUE`, each at most once. Return None for anything else."""
    if COMPLETION in os.environ or words[:1] != [_STDIN]:
        return None
    given = _pairs(words[1:], _DECIDE)
    if given is None:
        return None
    return DecideFlags(
        stdin=True,
        format_=given.get("format_", DecideFlags().format_),
        agent=given.get("agent"),
        policy=_path(given.get("policy")),
        state_dir=_path(given.get("state_dir")),
        config=_path(given.get("config")),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _pairs(words: Sequence[str], names: Mapping[str, str]) -> dict[str, str] | None:
    given: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        name = names.get(flag)
        text = value if equals else next(rest, "")
        # An empty value, or one that looks like another flag, is more likely a mistake; typer knows what it is.
        if name is None or name in given or not text or text.startswith("-"):
            return None
        given[name] = text
    return given
