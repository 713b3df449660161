from __future__ import annotations

from pathlib import Path

from proxy.audit.local_log import DIGEST_KEY_BYTES
from proxy.config import Settings
from proxy.fleet.mirror import COMMIT, KEY_BYTES, LISTS, SECRETS, Mirror
from proxy.flows.fingerprint import KEY_BYTES as FLOW_KEY_BYTES
from proxy.runtime.preload import MASK_KEY_BYTES
from proxy.wire.sse_ping_carrier import KEY_BYTES as SEAL_KEY_BYTES


def test_its_keys_have_the_size_that_their_users_want() -> None:
    assert {DIGEST_KEY_BYTES, FLOW_KEY_BYTES, MASK_KEY_BYTES, SEAL_KEY_BYTES} == {KEY_BYTES}


def test_what_a_first_start_would_make_is_made_once(tmp_path: Path) -> None:
    mirror = Mirror(Settings(state_dir=tmp_path))
    assert mirror.key_ids() == {}
    mirror.make_missing()
    made = mirror.key_ids()
    assert set(made) == set(SECRETS)
    assert all(mirror.list(name) is not None for name in LISTS)
    mirror.make_missing()
    assert mirror.key_ids() == made


def test_commit_keys_are_where_the_setting_says(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.json"
    mirror = Mirror(Settings(state_dir=tmp_path / "state", commit_keys=elsewhere))
    mirror.put_secret(COMMIT, b"x")
    assert elsewhere.read_bytes() == b"x"


def test_what_is_the_same_is_not_written_again(tmp_path: Path) -> None:
    mirror = Mirror(Settings(state_dir=tmp_path))
    mirror.put_list("agents", b"{}")
    before = mirror.file("agents").stat().st_ino
    mirror.put_list("agents", b"{}")
    assert mirror.file("agents").stat().st_ino == before
