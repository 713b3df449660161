"""One-time links: each works once, for a while, and a copy of their file opens nothing."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proxy.console.links import LINK_SECONDS, MAX_LINKS, OneTimeLinks, link_url
from proxy.errors import ConfigError


def test_a_link_works_once(tmp_path: Path) -> None:
    links = OneTimeLinks(tmp_path)
    secret = links.make("ann")
    assert links.take("ill_wrong") is None
    assert links.take(secret) == "ann"
    assert links.take(secret) is None


def test_of_many_browsers_with_one_link_one_gets_in(tmp_path: Path) -> None:
    secret = OneTimeLinks(tmp_path).make("ann")
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: OneTimeLinks(tmp_path).take(secret), range(32)))
    assert sorted(taken, key=str) == [None] * 31 + ["ann"]


def test_a_link_ends_after_a_while(tmp_path: Path) -> None:
    now = [1000.0]
    links = OneTimeLinks(tmp_path, lambda: now[0])
    secret = links.make("ann")
    now[0] += LINK_SECONDS
    assert links.take(secret) is None


def test_the_file_is_private_and_has_no_secret_in_it(tmp_path: Path) -> None:
    links = OneTimeLinks(tmp_path)
    secret = links.make("ann")
    assert stat.S_IMODE(links.path.stat().st_mode) == 0o600
    assert secret not in links.path.read_text()
    assert links.take(links.path.read_text().split('"')[1]) is None


def test_links_that_nobody_uses_do_not_pile_up(tmp_path: Path) -> None:
    links = OneTimeLinks(tmp_path)
    secrets = [links.make("ann") for _ in range(MAX_LINKS + 5)]
    assert links.take(secrets[0]) is None
    assert links.take(secrets[-1]) == "ann"


@pytest.mark.parametrize("content", ["{", "[]", '{"x": 1}', '{"x": {"operator": 1, "until": 2}}'])
def test_a_damaged_file_lets_nobody_in(content: str, tmp_path: Path) -> None:
    links = OneTimeLinks(tmp_path)
    links.path.write_text(content)
    with pytest.raises(ConfigError, match="delete it"):
        links.take("ill_x")


def test_the_secret_is_in_the_part_that_no_server_sees() -> None:
    assert link_url("http://127.0.0.1:1", "ill_x") == "http://127.0.0.1:1/login#ill_x"
