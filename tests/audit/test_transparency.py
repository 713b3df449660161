"""Proofs of a transparency log as they are kept, and what they say to a verification."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.audit.checkpoint_signer import CheckpointSigner
from proxy.audit.checkpoints import CHECKPOINT_FILE
from proxy.audit.rekor_client import RekorClient
from proxy.audit.rekor_entry import BadEntryError, LogKey
from proxy.audit.signed_checkpoints import Proofs, read_checkpoints
from proxy.audit.transparency import (
    PROOF_FILE,
    digest_of,
    parse_proof,
    read_log_key,
    read_problem,
    read_proofs,
    write_problem,
)
from proxy.audit.transparency_feed import TransparencyFeed
from proxy.config import Settings
from proxy.core.event import Head
from proxy.errors import ConfigError
from tests.support.rekor_server import RekorServer, start_rekor


@pytest.fixture(scope="module")
def server() -> Iterator[RekorServer]:
    with start_rekor() as log:
        yield log


@pytest.fixture
def settings(tmp_path: Path, server: RekorServer) -> Settings:
    """A state folder with two checkpoints of which the log has the second, and its key."""
    (tmp_path / "log.pem").write_bytes(server.pem)
    signer = CheckpointSigner(tmp_path, tmp_path / CHECKPOINT_FILE)
    for seq in (1, 2):
        assert signer.sign("head", [Head("w", seq, f"{seq:064x}")])
    post(tmp_path, server)
    return Settings.model_validate({"state_dir": tmp_path, "transparency_key": tmp_path / "log.pem"})


def post(folder: Path, server: RekorServer) -> None:
    client, key = RekorClient(server.url), LogKey.parse(server.pem)
    feed = TransparencyFeed(folder, folder / CHECKPOINT_FILE, client, key, 600.0)
    assert feed.leads()
    feed.round()
    feed.close()


def change(settings: Settings, **said: Any) -> None:
    file = settings.state_dir / PROOF_FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | said) + "\n")


def test_a_proof_is_a_checkpoint_too_and_says_since_when(settings: Settings, server: RekorServer) -> None:
    (settings.state_dir / CHECKPOINT_FILE).unlink()
    found = read_checkpoints(settings, proofs=Proofs.chosen(settings))
    assert found.broken == []
    assert found.evidence.signed["w"].links == {2: f"{2:064x}"}
    assert (found.logged["w"].seq, found.logged["w"].time) == (2, server.times[-1])


def test_a_history_that_was_signed_again_contradicts_the_log(settings: Settings) -> None:
    """By somebody with the key and every file but the proofs."""
    (settings.state_dir / CHECKPOINT_FILE).unlink()
    signer = CheckpointSigner(settings.state_dir, settings.state_dir / CHECKPOINT_FILE)
    assert signer.sign("head", [Head("w", 2, "ab" * 32)])
    assert read_checkpoints(settings).evidence.signed["w"].conflict is None
    assert read_checkpoints(settings, proofs=Proofs.chosen(settings)).evidence.signed["w"].conflict == 2


def test_a_proof_about_another_checkpoint_is_told(settings: Settings) -> None:
    first = (settings.state_dir / CHECKPOINT_FILE).read_text().splitlines()[0]
    change(settings, checkpoint=first)
    found = read_checkpoints(settings, proofs=Proofs.chosen(settings))
    assert found.logged == {}
    assert found.broken == [f"{settings.state_dir / PROOF_FILE}, line 1: it is an entry about something else"]


@pytest.mark.parametrize("line", [b"{", b"[]", b"7", b'{"version": 1}', b"\xff", b"[" * 100_000])
def test_a_line_that_is_no_proof_is_told(line: bytes, settings: Settings) -> None:
    with pytest.raises(BadEntryError, match="no proof"):
        parse_proof(line)
    (settings.state_dir / PROOF_FILE).write_bytes(line + b"\n\n")
    proofs = Proofs.chosen(settings)
    assert proofs is not None
    assert len(read_proofs(proofs.files, proofs.keys).broken) == 1


def test_another_version_or_type_is_no_proof(settings: Settings) -> None:
    for said in ({"version": 2}, {"checkpoint": 7}, {"entry": []}):
        kept = (settings.state_dir / PROOF_FILE).read_text()
        change(settings, **said)
        with pytest.raises(BadEntryError, match="no proof of version 1"):
            parse_proof((settings.state_dir / PROOF_FILE).read_bytes())
        (settings.state_dir / PROOF_FILE).write_text(kept)


def test_a_proof_of_a_log_whose_key_is_not_given_is_told(settings: Settings, tmp_path: Path) -> None:
    with start_rekor() as other:
        (tmp_path / "other.pem").write_bytes(other.pem)
    proofs = Proofs.chosen(settings, keys=[tmp_path / "other.pem"])
    (broken,) = read_checkpoints(settings, proofs=proofs).broken
    assert "whose key is not given" in broken
    both = Proofs.chosen(settings, keys=[tmp_path / "other.pem", tmp_path / "log.pem"])
    assert read_checkpoints(settings, proofs=both).broken == []


def test_proofs_without_a_key_are_an_error_and_no_proofs_are_none(settings: Settings, tmp_path: Path) -> None:
    bare = Settings.model_validate({"state_dir": tmp_path})
    with pytest.raises(ConfigError, match="give the log's key with transparency_key"):
        Proofs.chosen(bare)
    (tmp_path / PROOF_FILE).unlink()
    assert Proofs.chosen(bare) is None
    with pytest.raises(ConfigError, match="cannot be read"):
        read_checkpoints(settings, proofs=Proofs.chosen(settings, files=[tmp_path / "none.jsonl"]))


def test_a_file_that_is_no_key_is_an_error(tmp_path: Path) -> None:
    for content in (None, b"x"):
        if content is not None:
            (tmp_path / "k").write_bytes(content)
        with pytest.raises(ConfigError, match="cannot be read as a transparency log's public key"):
            read_log_key(tmp_path / "k")


def test_the_hash_is_that_of_the_line_without_its_end() -> None:
    assert digest_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_problem_is_kept_until_it_is_over(tmp_path: Path) -> None:
    assert read_problem(tmp_path, 5.0) is None
    write_problem(tmp_path, "it is away", 2.0)
    assert read_problem(tmp_path, 5.0) == "it has taken no checkpoints for 3 s: it is away"
    write_problem(tmp_path, None, 0.0)
    assert read_problem(tmp_path, 5.0) is None
