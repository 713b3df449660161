"""`interlock audit archive`, `prune --archive` and `verify --archive`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from proxy.audit.open_events import open_events
from tests.commands.conftest import Run, complaint
from tests.support.trail_fixture import move, sign, write


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    write(folder, range(1, 11))
    sign(folder)

    async def go() -> None:
        store = open_events(None, folder)
        await move(folder, store)
        await store.close()

    asyncio.run(go())
    return folder


@pytest.mark.usefixtures("state")
def test_an_archive_is_written_and_verified_and_nothing_is_deleted(run: Run, tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    done = json.loads(run("audit", "archive", "--to", place, "--json").stdout)
    assert (done["events"], done["files"]) == (10, 1)
    checked = run("audit", "verify", "--archive", place)
    assert checked.returncode == 0
    assert f"10 events of 1 writer in {place}: all as they were written." in checked.stdout.replace("\n", " ")
    assert "10 events of 1 writer" in run("audit", "verify").stdout


@pytest.mark.usefixtures("state")
def test_prune_archives_first(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    done = run("audit", "prune", "--before", "2025-12-31", "--archive", str(place), "--yes", "--json")
    assert json.loads(done.stdout)["pruned"] == 10
    checked = run("audit", "verify", "--archive", str(place), "--json")
    assert checked.returncode == 0
    assert json.loads(checked.stdout.splitlines()[-1])["checked"] == 10
    (file,) = place.glob("*/*.parquet")
    file.unlink()
    gone = run("audit", "verify", "--archive", str(place))
    assert gone.returncode != 0
    assert file.name in complaint(gone)


@pytest.mark.usefixtures("state")
def test_nothing_is_deleted_where_the_archive_cannot_be_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("audit", "prune", "--before", "2025-12-31", "--archive", str(tmp_path / "file"), "--yes")
    assert done.returncode != 0
    assert "nothing was pruned: the archive could not be written" in complaint(done)
    assert "10 events of 1 writer" in run("audit", "verify").stdout


def test_without_a_store_there_is_nothing_to_archive(run: Run, tmp_path: Path) -> None:
    assert "there is no store" in complaint(run("audit", "archive", "--to", str(tmp_path)))
