"""Second places for checkpoints: each takes them, gives them back, and says when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.audit.checkpoint_places import CheckpointPlace, open_place
from proxy.audit.checkpoint_signer import CheckpointSigner
from proxy.audit.checkpoints import CHECKPOINT_FILE
from proxy.audit.signed_checkpoints import read_checkpoints
from proxy.config import Settings
from proxy.core.event import Head
from proxy.errors import ConfigError, StoreUnavailableError

HEAD = Head("w", 3, "0" * 64)


@pytest.fixture(params=["file", "folder/", "postgres"])
def text(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("database_url"))
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


@pytest.mark.parametrize("value", ["", "s3://bucket/x", "postgresql://h/d#x"])
def test_what_is_no_place_is_refused(value: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="checkpoint_copies"):
        Settings.model_validate({"state_dir": tmp_path, "checkpoint_copies": [value]})
