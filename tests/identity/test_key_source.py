"""Keys of issuers: fetched once for all, kept for a stated time, and from files when these change."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from proxy.identity import key_source
from proxy.identity.key_source import AGAIN_SECONDS, FileKeys, KeysUnavailableError, RemoteKeys
from tests.support.oidc_issuer import new_key, start_issuer, usual_key


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_keys_are_fetched_once_for_all_that_wait_and_not_again_at_once() -> None:
    clock = Clock()
    with start_issuer() as issuer:
        source = RemoteKeys(issuer.url, clock=clock)
        with pytest.raises(KeysUnavailableError):
            source.current()
        assert await asyncio.gather(*(source.renew() for _ in range(20))) == [True] * 20
        assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]
        issuer.key = new_key()
        assert not await source.renew()
        clock.now += AGAIN_SECONDS
        assert await source.renew()
        assert source.version == 2
        clock.now += AGAIN_SECONDS
        assert not await source.renew()
        assert source.version == 2


async def test_keys_of_an_issuer_that_is_down_count_for_a_stated_time() -> None:
    clock = Clock()
    with start_issuer() as issuer:
        source = RemoteKeys(issuer.url, kept=100, clock=clock)
        await source.renew()
        issuer.down.add("/keys")
        clock.now += 100
        assert not await source.renew()
        assert len(source.current()) == 1
        clock.now += 1
        with pytest.raises(KeysUnavailableError):
            source.current()


@pytest.mark.parametrize(
    "document",
    [{"issuer": "https://other"}, {"jwks_uri": "http://elsewhere.example.com/keys"}, {"jwks_uri": None}, {"issuer": 7}],
)
async def test_what_an_issuer_says_of_itself_is_checked(document: dict[str, Any]) -> None:
    with start_issuer() as issuer:
        issuer.document = document
        source = RemoteKeys(issuer.url)
        assert not await source.renew()
        with pytest.raises(KeysUnavailableError):
            source.current()


async def test_an_empty_set_replaces_nothing() -> None:
    clock = Clock()
    with start_issuer() as issuer:
        source = RemoteKeys(issuer.url, jwks_url=f"{issuer.url}/keys", clock=clock)
        await source.renew()
        issuer.keys = lambda: {"keys": []}  # type: ignore[method-assign]
        clock.now += AGAIN_SECONDS
        assert not await source.renew()
        assert len(source.current()) == 1


async def test_keys_are_followed_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_source, "AGAIN_SECONDS", 0.01)
    with start_issuer() as issuer:
        source = RemoteKeys(issuer.url, refresh=0.01)
        following = asyncio.create_task(source.follow())
        try:
            async with asyncio.timeout(20):
                while source.version < 1:
                    await asyncio.sleep(0.01)
                issuer.key = new_key()
                while source.version < 2:
                    await asyncio.sleep(0.01)
        finally:
            following.cancel()


async def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    source = FileKeys(path)
    with pytest.raises(KeysUnavailableError):
        source.current()
    path.write_text(json.dumps({"keys": [usual_key().as_dict(private=False)]}))
    assert len(source.current()) == 1
    version = source.version
    assert len(source.current()) == 1
    assert source.version == version
    path.write_text("no keys")
    with pytest.raises(KeysUnavailableError):
        source.current()
    assert source.version > version
    assert not await source.renew()


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(b" " * (key_source.MAX_FILE + 1))
    with pytest.raises(KeysUnavailableError):
        FileKeys(path).current()
