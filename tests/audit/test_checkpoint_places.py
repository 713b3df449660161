"""Second places for checkpoints: each takes them, gives them back, and says when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.audit import checkpoint_places
from proxy.audit.checkpoint_places import CheckpointPlace, open_place
from proxy.audit.checkpoint_signer import CheckpointSigner
from proxy.audit.checkpoints import CHECKPOINT_FILE, read_lines
from proxy.audit.signed_checkpoints import read_checkpoints
from proxy.config import Settings
from proxy.core.event import Head
from proxy.errors import ConfigError, StoreUnavailableError

HEAD = Head("w", 3, "0" * 64)


@pytest.fixture(params=["file", "folder/", "postgres", "file://"])
def text(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("database_url"))
    if request.param == "file://":
        return f"file://{tmp_path}/bucket"
    return f"{tmp_path}/{request.param}"


async def test_what_a_place_took_it_gives_back(text: str, tmp_path: Path) -> None:
    """Under a running event loop, as the shipper is."""
    place = open_place(text, tmp_path)
    assert place.lines() == []
    signer = CheckpointSigner(tmp_path, tmp_path / CHECKPOINT_FILE, copies=[place])
    assert signer.sign("head", [HEAD])
    assert [one.line().encode() for one in signer.take_unstored()] == place.lines()
    settings = Settings.model_validate({"state_dir": tmp_path, "checkpoint_copies": [text]})
    (tmp_path / CHECKPOINT_FILE).unlink()
    assert read_checkpoints(settings).evidence.signed["w"].links == {3: HEAD.hash}


def test_each_proxy_has_a_file_of_its_own_in_a_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        signer = CheckpointSigner(
            tmp_path / name, tmp_path / name / "c", copies=[open_place(f"{tmp_path}/vault/", tmp_path / name)]
        )
        assert signer.sign("head", [HEAD])
    assert len(list((tmp_path / "vault").iterdir())) == 2
    assert len(open_place(f"{tmp_path}/vault", tmp_path).lines()) == 2


@pytest.mark.parametrize("bad", ["blocked/file", "postgresql://nobody@127.0.0.1:1/none"])
def test_a_place_that_fails_is_told_and_gets_it_later(bad: str, tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("")
    place = open_place(bad if ":" in bad else str(tmp_path / bad), tmp_path)
    signer = CheckpointSigner(tmp_path, tmp_path / CHECKPOINT_FILE, copies=[place])
    assert not signer.sign("head", [HEAD])
    assert signer.problem
    settings = Settings.model_validate({"state_dir": tmp_path, "checkpoint_copies": [place.name]})
    if ":" in bad:
        with pytest.raises((ConfigError, StoreUnavailableError)):
            read_checkpoints(settings)
        return
    (tmp_path / "blocked").unlink()
    assert signer.sign("head", [Head("w", 4, "1" * 64)])
    assert len(place.lines()) == 2


class Slow:
    """A place that cannot be read."""

    name = "slow"

    def add(self, checkpoints: object) -> None:
        raise OSError("no room")

    def lines(self) -> list[bytes]:
        raise ConfigError("no")


def test_a_place_that_never_works_keeps_no_other_out(tmp_path: Path) -> None:
    never: CheckpointPlace = Slow()
    good = open_place(f"{tmp_path}/good", tmp_path)
    signer = CheckpointSigner(tmp_path, tmp_path / CHECKPOINT_FILE, copies=[never, good])
    assert not signer.sign("head", [HEAD])
    assert not signer.sign("head", [HEAD])
    assert len(good.lines()) == 2


@pytest.mark.parametrize("value", ["", "http://h/x", "s4://bucket/x", "s3://key:secret@bucket/x", "postgresql://h/d#x"])
def test_what_is_no_place_is_refused(value: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="checkpoint_copies"):
        Settings.model_validate({"state_dir": tmp_path, "checkpoint_copies": [value]})


def test_in_an_object_store_each_process_has_its_own_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_places, "OBJECT_LINES", 3)
    url = f"file://{tmp_path}/bucket"
    places = [open_place(url, tmp_path) for _ in range(2)]
    signers = [CheckpointSigner(tmp_path, tmp_path / CHECKPOINT_FILE, copies=[place]) for place in places]
    for seq in range(1, 5):
        for signer in signers:
            assert signer.sign("head", [Head("w", seq, f"{seq:064x}")])
    assert len(list((tmp_path / "bucket").glob("interlock-*.jsonl"))) == 4
    (tmp_path / "bucket" / "other.txt").write_text("x")
    assert sorted(places[0].lines()) == sorted(read_lines(tmp_path / CHECKPOINT_FILE))
    assert places[0].lines() == places[1].lines() == open_place(url, tmp_path).lines()


def test_an_object_store_that_fails_gets_it_later_in_order(tmp_path: Path) -> None:
    (tmp_path / "bucket").write_text("no folder")
    place = open_place(f"file://{tmp_path}/bucket", tmp_path)
    signer = CheckpointSigner(tmp_path, tmp_path / CHECKPOINT_FILE, copies=[place])
    assert not signer.sign("head", [HEAD])
    (tmp_path / "bucket").unlink()
    assert signer.sign("head", [Head("w", 4, "1" * 64)])
    assert place.lines() == read_lines(tmp_path / CHECKPOINT_FILE)
