"""The keys that sign commit tokens."""

from __future__ import annotations

import base64
import concurrent.futures
import json
import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from proxy.config import load_settings
from proxy.errors import ConfigError
from proxy.twophase.keys import KEEP_SECONDS, CommitKeys, EnvironmentKeys, KeyFile, open_keys
from proxy.twophase.tokens import BadTokenError, Token, issue, read

SECRET = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4


def token(expires_at: float) -> Token:
    names = ("token_id", "proposal_id", "tool_name", "tool_args_hash", "nonce", "server", "principal")
    return Token(**dict.fromkeys(names, "x"), issued_at=0.0, expires_at=expires_at, composite_score=None)


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys" / "commit-keys.json")


def ids(keys: CommitKeys, now: float) -> list[str]:
    return [entry.key.key_id for entry in keys.entries(now)]


def test_the_first_key_is_made_at_random_and_is_its_owners_alone(keys: KeyFile, tmp_path: Path) -> None:
    assert keys.entries(0.0) == []
    before = os.umask(0)
    try:
        ring = keys.ring(0.0)
    finally:
        os.umask(before)
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    assert len(ring.current.secret) == 32
    assert ring.older == ()
    assert ring != KeyFile(tmp_path / "other.json").ring(0.0)
    assert KeyFile(keys.path).ring(1.0) == ring, "another process has the same"


def make_ring(path: Path) -> str:
    return KeyFile(path).ring(0.0).current.key_id


def test_processes_that_come_first_at_once_have_one_key(keys: KeyFile) -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(4, mp_context=context) as pool:
        assert len(set(pool.map(make_ring, [keys.path] * 8, timeout=90))) == 1


def test_a_rotation_reaches_who_has_the_keys_open(keys: KeyFile) -> None:
    running = KeyFile(keys.path)
    given = issue(token(expires_at=150.0), running.ring(0.0))
    made = keys.rotate(100.0, keep_seconds=60.0)
    ring = running.ring(100.0)
    assert ring.current == made.key
    assert read(given, ring).expires_at == 150.0
    assert issue(token(expires_at=150.0), ring).split(".")[1] == made.key.key_id


def test_an_old_key_verifies_until_its_time_and_is_then_gone(keys: KeyFile) -> None:
    before = keys.ring(0.0)
    keys.rotate(100.0, keep_seconds=60.0)
    with pytest.raises(BadTokenError):
        read(issue(token(expires_at=161.0), before), keys.ring(100.0))
    assert [key.key_id for key in keys.ring(159.0).older] == [before.current.key_id]
    assert keys.ring(160.0).older == ()
    keys.rotate(200.0)
    assert before.current.secret.hex() not in keys.path.read_text(), "a key whose time has passed is deleted"


def test_rotating_twice_gives_no_old_key_more_time(keys: KeyFile) -> None:
    keys.ring(0.0)
    keys.rotate(10.0, keep_seconds=20.0)
    keys.rotate(20.0, keep_seconds=1000.0)
    assert [key.not_after for key in keys.ring(21.0).older] == [1020.0, 30.0]


def test_a_key_that_may_be_known_is_dropped_at_once(keys: KeyFile) -> None:
    stolen = keys.ring(0.0)
    keys.rotate(10.0, keep_seconds=0.0)
    with pytest.raises(BadTokenError):
        read(issue(token(expires_at=11.0), stolen), keys.ring(10.0))


def rotate(path: Path) -> str:
    return KeyFile(path).rotate(0.0).key.key_id


def test_rotations_at_once_undo_none_of_each_other(keys: KeyFile) -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(4, mp_context=context) as pool:
        made = set(pool.map(rotate, [keys.path] * 8, timeout=90))
    assert set(ids(keys, 0.0)) == made
    assert len(made) == 8


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_that_others_can_read_is_refused_with_the_way_out(keys: KeyFile, mode: int) -> None:
    keys.ring(0.0)
    keys.path.chmod(mode)
    with pytest.raises(ConfigError, match=f"chmod 600 {keys.path}"):
        keys.ring(0.0)
    keys.path.chmod(0o600)
    assert keys.ring(0.0)


GOOD = {"secret": SECRET, "created_at": 1.0, "not_after": None}
OLD = {"secret": OTHER, "created_at": 1.0, "not_after": 5.0}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "not json",
        "[]",
        "5",
        "[" * 100_000,
        json.dumps({"version": 2, "keys": [GOOD]}),
        json.dumps({"version": 1, "keys": []}),
        json.dumps({"version": 1, "keys": [OLD]}),
        json.dumps({"version": 1, "keys": [GOOD, GOOD]}),
        json.dumps({"version": 1, "keys": [{**GOOD, "secret": SECRET[2:]}]}),
        json.dumps({"version": 1, "keys": [{**GOOD, "secret": "zz" * 32}]}),
        json.dumps({"version": 1, "keys": [{**GOOD, "secret": 5}]}),
        json.dumps({"version": 1, "keys": [{"secret": SECRET}]}),
    ],
)
@pytest.mark.parametrize("act", [KeyFile.ring, KeyFile.entries, KeyFile.rotate])
def test_a_file_that_is_no_keys_is_refused_and_left_as_it_is(keys: KeyFile, content: str, act: object) -> None:
    keys.ring(0.0)
    keys.path.write_text(content)
    with pytest.raises(ConfigError, match="does not hold commit keys") as caught:
        act(keys, 0.0)  # type: ignore[operator]
    assert SECRET[2:] not in str(caught.value)
    assert keys.path.read_text() == content


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir(mode=0o700)
    with pytest.raises(ConfigError, match="cannot be read"):
        KeyFile(tmp_path / "folder.json").ring(0.0)


def test_the_environments_first_secret_signs_and_all_verify() -> None:
    before, after = EnvironmentKeys(SECRET), EnvironmentKeys(f"{OTHER}, {SECRET}")
    given = issue(token(expires_at=1e9), before.ring(0.0))
    assert read(given, after.ring(0.0)).expires_at == 1e9
    assert ids(after, 0.0) == [*ids(EnvironmentKeys(OTHER), 0.0), *ids(before, 0.0)]
    with pytest.raises(BadTokenError):
        read(given, EnvironmentKeys(OTHER).ring(0.0))


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (SECRET, bytes.fromhex(SECRET)),
        (base64.b64encode(bytes(range(32))).decode(), bytes(range(32))),
        (base64.urlsafe_b64encode(bytes(range(200, 232))).decode(), bytes(range(200, 232))),
        ("a long enough sentence, it is not".replace(",", ""), b"a long enough sentence it is not"),
    ],
)
def test_a_secret_may_be_hex_base64_or_text(text: str, secret: bytes) -> None:
    assert EnvironmentKeys(text).ring(0.0).current.secret == secret


@pytest.mark.parametrize("text", ["hunter2", SECRET[2:], f"{SECRET},", f"{SECRET},hunter2", "00" * 32, "changeme" * 3])
def test_a_weak_secret_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError, match=r"INTERLOCK_COMMIT_SECRET: secret [12], read as") as caught:
        EnvironmentKeys(text)
    assert "openssl rand" in str(caught.value)
    assert text not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_keys_from_the_environment_are_rotated_there() -> None:
    with pytest.raises(ConfigError, match="put a new secret before the one there"):
        EnvironmentKeys(SECRET).rotate(0.0)


def test_settings_and_environment_say_where_the_keys_are(tmp_path: Path) -> None:
    settings = load_settings({"state_dir": tmp_path}, {}).settings.commit_keys_file
    named = load_settings({"state_dir": tmp_path, "commit_keys": tmp_path / "k"}, {}).settings.commit_keys_file
    in_state, in_file = open_keys(settings, {}), open_keys(named, {"INTERLOCK_COMMIT_SECRET": ""})
    assert isinstance(in_state, KeyFile)
    assert isinstance(in_file, KeyFile)
    assert (in_state.path, in_file.path) == (tmp_path / "keys" / "commit-keys.json", tmp_path / "k")
    assert isinstance(open_keys(named, {"INTERLOCK_COMMIT_SECRET": SECRET}), EnvironmentKeys)


def test_a_replaced_key_outlives_the_longest_token() -> None:
    assert KEEP_SECONDS > 86_400
