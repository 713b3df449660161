"""Ever new names of one site."""

from proxy.core.model import EgressRequest
from proxy.egress.name_counter import MAX_SITES, MOST_NAMES, WINDOW_SECONDS, NameCounter


def asked(counter, host, agent="a"):
    return counter.is_one_too_many(EgressRequest(host, 443, "GET", (), agent))


def test_one_name_too_many_is_told_and_known_names_are_not():
    counter = NameCounter(lambda: 0.0)
    assert not any(asked(counter, f"n{i}.example.net") for i in range(MOST_NAMES))
    assert asked(counter, "another.example.net")
    assert asked(counter, "ANOTHER.example.net.")
    assert not asked(counter, "n3.example.net")
    assert not asked(counter, "another.example.org")
    assert not asked(counter, "another.example.net", agent="b")


def test_names_are_forgotten_after_the_window():
    now = [0.0]
    counter = NameCounter(lambda: now[0])
    for i in range(MOST_NAMES):
        asked(counter, f"n{i}.example.net")
    now[0] = WINDOW_SECONDS + 1
    assert not asked(counter, "another.example.net")


def test_addresses_are_no_names_and_memory_is_bounded():
    counter = NameCounter(lambda: 0.0)
    assert not any(asked(counter, f"10.0.{i}.1") for i in range(100))
    for i in range(MAX_SITES + 50):
        asked(counter, f"www.site{i}.net")
    assert len(counter._sites) <= MAX_SITES + 1
