"""Log lines: one format, on stderr, without secrets."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import structlog

from proxy.system import log_setup
from proxy.system.log_setup import configure, name_worker, silence
from proxy.system.terminal_text import display_width
from tests.support.terminal_screen import Screen


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_away_from_a_terminal_every_line_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    configure()
    structlog.get_logger("interlock.gate").info("decided", call_id="c", rule=None)
    logging.getLogger("somebody.else").warning("careful")
    out, err = capsys.readouterr()
    first, second = (json.loads(line) for line in err.splitlines())
    assert out == ""
    assert (first["event"], first["call_id"], first["level"], first["logger"]) == (
        "decided",
        "c",
        "info",
        "interlock.gate",
    )
    assert (second["event"], second["logger"]) == ("careful", "somebody.else")
    assert first["timestamp"].endswith("Z")


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_an_exception_is_shown_without_the_values_at_hand(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure(log_format=log_format)
    arguments = {"password": "hunter" + str(2)}
    try:
        raise ValueError(str(len(arguments)))
    except ValueError:
        structlog.get_logger("x").exception("it broke")
        structlog.get_logger("x").info("it broke", exc_info=True)
    err = capsys.readouterr().err
    assert err.count("ValueError: 1") == 2
    assert "hunter2" not in err


def test_console_lines_are_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure(log_format="console")
    structlog.get_logger("x").info("decided", tool="t")
    err = capsys.readouterr().err
    assert "decided" in err
    assert "tool=t" in err
    assert not err.startswith("{")


def test_lines_below_the_level_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure(level="warning", log_format="json")
    structlog.get_logger("x").info("no")
    structlog.get_logger("x").warning("yes")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["yes"]


async def test_lines_of_one_turn_are_written_together_and_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    configure(log_format="json")
    log = structlog.get_logger("x")
    log.info("one")
    log.info("two")
    assert capsys.readouterr().err == ""
    log.warning("three")
    log.info("four")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["one", "two", "three"]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["four"]


def test_mitmproxys_own_chatter_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure(level="debug", log_format="json")
    logging.getLogger("mitmproxy.proxy").info("client connect")
    assert capsys.readouterr().err == ""


def test_a_command_s_output_has_no_log_lines(capsys: pytest.CaptureFixture[str]) -> None:
    structlog.reset_defaults()
    silence()
    log = structlog.get_logger("interlock.store")
    log.warning("trying again")
    log.error("failed")
    assert capsys.readouterr() == ("", "")
    configure()
    log.warning("trying again")
    assert "trying again" in capsys.readouterr().err


def test_lines_of_a_worker_say_which_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_setup, "_WORKER", {})
    configure()
    ours = structlog.get_logger("interlock.gate")
    ours.info("before")
    name_worker(3)
    ours.info("after")
    logging.getLogger("somebody.else").warning("careful")
    said = [json.loads(line).get("worker") for line in capsys.readouterr().err.splitlines()]
    assert said == [None, 3, 3]


@pytest.mark.parametrize(
    "value", ["é", "\ud800", 1 << 70, {1: 2}, {"a": [None, 1.5]}, object, UTC, "\x00\x7f"], ids=ascii
)
def test_whatever_is_in_a_line_it_is_the_json_that_json_makes_of_it(
    value: object, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(log_format="json")
    monkeypatch.setattr("time.time", lambda: 1_763_000_000.25)
    log = structlog.get_logger("x").bind(rule=None)
    log.info("odd", value=value, ms=0.25)
    at_once = capsys.readouterr().err
    log._proxy_to_logger("info", "odd", value=value, ms=0.25)
    assert capsys.readouterr().err == at_once, "the short way of level info gives what structlog's own does"
    structlog.get_logger("x").warning("odd", value=value)
    err = capsys.readouterr().err
    assert err.isascii()
    assert json.loads(err)["value"] == json.loads(json.dumps(value, default=repr))
    assert datetime.fromisoformat(json.loads(err)["timestamp"]).tzinfo == UTC


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [({"NO_COLOR": "", "TERM": "xterm"}, True), ({"NO_COLOR": "1", "TERM": "xterm"}, False), ({"TERM": "dumb"}, False)],
)
def test_a_decision_on_a_terminal_is_one_line_of_its_width(
    environ: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with Screen(60) as screen, os.fdopen(os.dup(screen.stream), "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        configure()
        said = {"decision": "deny", "agent": "a" * 50, "server": "s" * 50, "tool": "t\x1b[2J" * 20, "rule": "r"}
        structlog.get_logger("interlock.gate").info("decided", **said)
        (line,) = screen.read_until(lambda lines: len(lines) == 1 and lines[0].endswith("  r"))
        assert display_width(line) <= 60
        assert ("\x1b[31mdeny" in screen.raw) is coloured
        assert ("\x1b" in screen.raw) is coloured
