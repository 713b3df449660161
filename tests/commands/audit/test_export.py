"""`interlock audit export | prune`, on SQLite and Postgres alike, wherever the events are at the time."""

from __future__ import annotations

import csv
import json
import stat
from pathlib import Path

import pytest

from proxy.audit.local_log import LOG_FILE, read_log
from proxy.telemetry.syslog import ELEMENT
from tests.commands.conftest import Run, complaint
from tests.support import cef_parser, syslog_parser
from tests.support.audit_fixture import NOW, TRAIL, World, event
from tests.support.ocsf_check import problems
from tests.telemetry.test_cloudevents import CHECK


class TestExport:
    def test_every_event_is_written_once_exactly_as_it_was_recorded(self, run: Run, trail: World) -> None:
        done = run("audit", "export", *trail.flags)
        assert (done.returncode, done.stderr) == (0, "")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert [set(line) for line in lines] == [{"body", "writer", "seq", "chain"}] * len(TRAIL)
        assert [json.loads(line["body"])["event_id"] for line in lines] == [one.event_id for one in TRAIL]
        assert [line["seq"] for line in lines] == list(range(1, len(TRAIL) + 1))

    def test_an_export_can_be_verified_and_a_forged_one_not(self, run: Run, trail: World, tmp_path: Path) -> None:
        path = tmp_path / "trail.jsonl"
        done = run("audit", "export", "--output", str(path), *trail.flags)
        assert done.stderr == f"{len(TRAIL)} events in {path}\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        verified = run("audit", "verify", "--export", str(path), *trail.flags)
        assert verified.returncode in (0, 3)  # 3: what was never shipped was never signed
        path.write_text(path.read_text().replace("bob", "eve"))
        assert run("audit", "verify", "--export", str(path), *trail.flags).returncode == 1

    def test_filters_and_a_limit_hold(self, run: Run, trail: World) -> None:
        assert len(run("audit", "export", "--tool", "pay", *trail.flags).stdout.splitlines()) == 2
        first = run("audit", "export", "--limit", "3", *trail.flags).stdout.splitlines()
        assert [json.loads(line)["seq"] for line in first] == [1, 2, 3]

    def test_many_pages_are_written_in_order(self, run: Run, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("proxy.audit.reader.LIMIT", 30)
        monkeypatch.setattr("proxy.audit.reader.PAGE_CHARACTERS", 3000)
        world.record(*(event(number, time=NOW + number // 3) for number in range(1, 60)))
        world.ship()
        world.record(*(event(number, time=NOW + number // 3) for number in range(60, 100)))
        lines = run("audit", "export", *world.flags).stdout.splitlines()
        assert [json.loads(line)["seq"] for line in lines] == list(range(1, 100))

    def test_csv_has_a_column_for_each_field(self, run: Run, trail: World, tmp_path: Path) -> None:
        path = tmp_path / "trail.csv"
        run("audit", "export", "--format", "csv", "--output", str(path), *trail.flags)
        with path.open(newline="") as file:
            found = list(csv.DictReader(file))
        assert [row["event_id"] for row in found] == [one.event_id for one in TRAIL]
        assert json.loads(found[0]["arguments"]) == TRAIL[0].arguments
        assert found[0]["time"] == "2025-11-13T02:13:21.250000+00:00"
        assert (found[1]["is_error"], found[4]["is_error"], found[0]["is_error"]) == ("false", "true", "")

    def test_ocsf_and_cloudevents_are_valid_lines(self, run: Run, trail: World) -> None:
        for form, wrong in (("ocsf", problems), ("cloudevents", lambda event: [*CHECK.iter_errors(event)])):
            lines = run("audit", "export", "--format", form, *trail.flags).stdout.splitlines()
            assert len(lines) == len(TRAIL)
            assert [wrong(json.loads(line)) for line in lines] == [[]] * len(TRAIL)
            assert "/etc/hosts" not in "".join(lines)

    def test_cef_and_syslog_are_read_back(self, run: Run, trail: World) -> None:
        ids = [one.event_id for one in TRAIL]
        cef = run("audit", "export", "--format", "cef", *trail.flags).stdout.splitlines()
        assert [cef_parser.parse(line)[1]["externalId"] for line in cef] == ids
        flags = ("--format", "syslog", "--arguments", *trail.flags)
        messages = [syslog_parser.parse(line) for line in run("audit", "export", *flags).stdout.splitlines()]
        assert [one.data[ELEMENT]["event_id"] for one in messages] == ids
        assert "/etc/hosts" in messages[0].data[ELEMENT]["arguments"]

    @pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx", "\rx", "\nx", "\uff1dx"])
    def test_no_cell_is_a_formula(self, run: Run, world: World, text: str) -> None:
        world.record(event(1, agent=text))
        out = run("audit", "export", "--format", "csv", *world.flags).stdout
        assert f"'{text.strip()}" in out.replace("\t", "").replace("\r", "").replace("\n", "")

    def test_no_cell_drives_a_terminal(self, run: Run, world: World) -> None:
        world.record(event(1, agent="\x1b[2J\x9b", arguments={"a": "\x9b\u202e"}))
        out = run("audit", "export", "--format", "csv", *world.flags).stdout
        assert "\\x1b[2J\\x9b" in out
        assert not {"\x1b", "\x9b", "\u202e"} & set(out)

    def test_an_export_that_fails_leaves_no_file(self, run: Run, world: World, tmp_path: Path) -> None:
        world.record(*TRAIL)
        (world.state_dir / "log" / "run-1.db").write_bytes(b"garbage " * 500)
        assert run("audit", "export", "--output", str(tmp_path / "out"), *world.flags).returncode == 1
        assert [path for path in tmp_path.iterdir() if "out" in path.name] == []

    def test_a_folder_that_is_not_there_is_told(self, run: Run, trail: World, tmp_path: Path) -> None:
        assert "No such file" in complaint(run("audit", "export", "--output", str(tmp_path / "no" / "x"), *trail.flags))


class TestPrune:
    def test_what_is_older_goes_and_the_rest_still_verifies(self, run: Run, world: World) -> None:
        world.record(*TRAIL)
        world.ship()
        done = run("audit", "prune", "--before", "2025-11-13T02:13:24Z", "--yes", "--json", *world.flags)
        assert json.loads(done.stdout)["pruned"] == 3
        assert len(run("audit", "export", *world.flags).stdout.splitlines()) == 3
        assert run("audit", "verify", *world.flags).returncode == 0
        again = run("audit", "prune", "--before", "2025-11-13T02:13:24Z", "--yes", *world.flags)
        assert again.stdout.startswith("Deleted 0 events from before 2025-11-13 02:13:24 UTC from ")

    def test_what_was_not_moved_yet_stays(self, run: Run, world: World) -> None:
        world.record(*TRAIL[:3])
        world.ship()
        world.record(*TRAIL[3:])
        assert run("audit", "prune", "--before", "1s", "--yes", *world.flags).returncode == 0
        assert len(list(read_log(world.state_dir / LOG_FILE))) == 3

    @pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("n\n", 6), ("\n", 6), ("", 6)])
    def test_somebody_is_asked_first(
        self, run: Run, world: World, monkeypatch: pytest.MonkeyPatch, answer: str, left: int
    ) -> None:
        import io

        world.record(*TRAIL)
        world.ship()
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        done = run("audit", "prune", "--before", "1d", *world.flags)
        assert "Delete 6 events from before" in done.stderr
        assert done.returncode == (0 if left == 0 else 1)
        assert len(run("audit", "export", *world.flags).stdout.splitlines()) == left

    def test_nothing_goes_where_nothing_can_be_signed(self, run: Run, world: World) -> None:
        world.record(*TRAIL)
        world.ship()
        checkpoints = world.state_dir / "checkpoints" / "checkpoints.jsonl"
        checkpoints.unlink()
        checkpoints.mkdir()
        assert "nothing was pruned" in complaint(run("audit", "prune", "--before", "1d", "--yes", *world.flags))
        assert len(run("audit", "export", *world.flags).stdout.splitlines()) == 6

    def test_a_store_that_is_not_there_and_a_bad_age_are_told(self, run: Run) -> None:
        assert "there is no store in" in complaint(run("audit", "prune", "--before", "1d", "--yes"))
        assert "write 7d" in complaint(run("audit", "prune", "--before", "old", "--yes"))
