"""`interlock notify`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.commands.conftest import Run, complaint
from tests.notify.conftest import Taken, hook

__all__ = ["hook"]


def written(tmp_path: Path, hook: Taken) -> str:
    file = tmp_path / "notify.yaml"
    targets = {
        "pager": {"kind": "webhook", "url": f"http://127.0.0.1:{hook.port}/SECRET"},
        "gone": {"kind": "slack", "url": "http://127.0.0.1:1/SECRET"},
    }
    file.write_text(json.dumps(targets))
    return str(file)


def test_one_target_is_told_and_says_so(run: Run, tmp_path: Path, hook: Taken) -> None:
    done = run("notify", "test", "pager", "--notify", written(tmp_path, hook))
    assert (done.returncode, done.stderr) == (0, "pager: taken\n")
    ((path, _, body),) = hook.requests
    assert path == "/SECRET"
    assert json.loads(body)["tool"] == "a_test_of_notices"


def test_one_that_does_not_take_it_is_told_of_without_its_address(run: Run, tmp_path: Path, hook: Taken) -> None:
    done = run("notify", "test", "--notify", written(tmp_path, hook))
    assert done.returncode == 1
    assert "pager: taken" in done.stderr
    assert "gone: failed: ConnectionRefusedError" in done.stderr
    assert "SECRET" not in done.stderr


def test_without_targets_there_is_nothing_to_test(run: Run, tmp_path: Path, hook: Taken) -> None:
    assert "there are no targets" in complaint(run("notify", "test"))
    assert "there is no target 'x'; targets are pager, gone" in complaint(
        run("notify", "test", "x", "--notify", written(tmp_path, hook))
    )
