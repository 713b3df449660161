"""Exported events as a trail; the others are tested by what verification finds in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.audit.trails import FileTrail, LogsTrail, event_id
from proxy.audit.verify import verify
from proxy.errors import ConfigError
from tests.support.trail_fixture import sign, signed, write


async def exported(state_dir: Path) -> list[dict[str, Any]]:
    logs = LogsTrail(state_dir)
    (writer,) = await logs.heads()
    entries = [one.entry for one in await logs.page(writer, (0, "", 0.0))]
    return [{"writer": one.writer, "seq": one.seq, "chain": one.chain, "body": one.body} for one in entries]


@pytest.fixture
async def lines(tmp_path: Path) -> list[dict[str, Any]]:
    write(tmp_path, range(1, 11))
    sign(tmp_path)
    return await exported(tmp_path)


async def checked(tmp_path: Path, lines: list[dict[str, Any]]) -> tuple[int, list[tuple[int | None, str]]]:
    file = tmp_path / "export.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + "\n")
    report = await verify(FileTrail(file), signed(tmp_path))
    return report.checked, [(problem.seq, problem.what) for problem in report.problems]


async def test_an_export_is_verified_in_whatever_order_its_lines_are(
    tmp_path: Path, lines: list[dict[str, Any]]
) -> None:
    assert await checked(tmp_path, lines) == (10, [])
    assert await checked(tmp_path, lines[::-1]) == (10, [])


async def test_tampering_with_an_export_is_found(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    assert (await checked(tmp_path, lines[:3] + lines[4:]))[1] == [(4, "missing")]
    assert (await checked(tmp_path, lines[:-1]))[1] == [(10, "missing")]
    assert (await checked(tmp_path, [*lines, lines[4]]))[1] == [(5, "repeated")]
    lines[3]["body"] = lines[3]["body"].replace("deny", "allow")
    assert (await checked(tmp_path, lines))[1] == [(4, "altered")]


async def test_a_line_without_a_place_is_found(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    loose = {"writer": None, "seq": None, "chain": None, "body": '{"event_id": "x"}'}
    assert await checked(tmp_path, [*lines, loose]) == (10, [(None, "unchained")])


@pytest.mark.parametrize("line", ["nonsense", "[]", "{}", '{"body": "x"}'])
def test_a_file_of_something_else_is_told_with_its_line(line: str, tmp_path: Path) -> None:
    (tmp_path / "e").write_text(f"\n{line}\n")
    with pytest.raises(ConfigError, match="line 2"):
        FileTrail(tmp_path / "e")
    with pytest.raises(ConfigError, match="cannot be read"):
        FileTrail(tmp_path / "none")


@pytest.mark.parametrize("body", ["nonsense", "[]", "{}", '{"event_id": 5}', "[" * 10_000])
def test_a_text_without_an_id_has_none(body: str) -> None:
    assert event_id(body) == ""
