"""A halt as people read it, and as JSON."""

from proxy.core.halts import Halt


def test_the_scope_is_what_is_named() -> None:
    assert Halt("h", "why", "olga", 1.0).scope == "everything"
    assert Halt("h", "why", "olga", 1.0, agent="a", tool="t").scope == "agent a, tool t"


def test_it_comes_back_from_json() -> None:
    halt = Halt("h", "why", "olga", 1.0, server="s", cut=True, origin="api")
    assert Halt(**halt.data()) == halt
