from __future__ import annotations

import pytest

from proxy.sandbox.host_scope import NamedHost, named_hosts, names

NAMED = {
    "https://Example.com/a": {("example.com", 443)},
    "http://example.com": {("example.com", 80), ("example.com", 443)},
    "see https://a.test:8443/x and http://b.test/": {("a.test", 8443), ("b.test", 80), ("b.test", 443)},
    "example.com": {("example.com", 80), ("example.com", 443)},
    "example.com.": {("example.com", 80), ("example.com", 443)},
    "db.internal:5432": {("db.internal", 5432)},
    "[::1]:9000": {("::1", 9000)},
    "http://0x7f.1/": {("127.0.0.1", 80), ("127.0.0.1", 443)},
    "https://user:pw@evil.test/?u=https://a.test": {("evil.test", 443)},
    "ssh://git@host.test/x.git": {("host.test", 22)},
    "https://bücher.test/": {("xn--bcher-kva.test", 443)},
    "*.example.com": set(),
    "https://*.example.com/": set(),
    "https://": set(),
    "a sentence. Another one": set(),
    "notes": set(),
    "": set(),
}


@pytest.mark.parametrize("text", NAMED)
def test_what_a_text_names(text: str) -> None:
    assert named_hosts({"deep": [{"url": text}]}) == {NamedHost(*each) for each in NAMED[text]}


def test_a_name_stands_for_itself_alone() -> None:
    hosts = named_hosts({"url": "https://example.com/"})
    assert names(hosts, "EXAMPLE.com.", 443)
    for host, port in (("a.example.com", 443), ("example.com", 80), ("example.com.evil.test", 443), ("com", 443)):
        assert not names(hosts, host, port)


def test_keys_name_hosts_and_endless_depth_names_nothing() -> None:
    assert names(named_hosts({"https://key.test/": 1}), "key.test", 443)
    deep: object = "https://deep.test/"
    for _ in range(5000):
        deep = [deep]
    assert named_hosts(deep) == frozenset()
