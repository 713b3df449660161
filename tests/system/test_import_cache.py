"""What imports compile is kept, comes back the same, and is compiled anew wherever it is not there."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from proxy.system import import_cache
from proxy.system.import_cache import ImportCache, beside_bytecode
from tests.support.harness import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

TEXTS: tuple[tuple[Any, int], ...] = (
    (r"(?P<name>[a-zé-ü]+)\s*=\s*(\"[^\"]*\"|'[^']*')", re.IGNORECASE),
    (r"(?x) ^ \d{3,5}+ (?= (?:ab|\w)*? ) (?<! x ) $ # the end", re.MULTILINE),
    (rb"[\x00-\x08\x7f]|(\\u[0-9a-f]{4})\1", 0),
    ("", re.ASCII),
)


@pytest.fixture(autouse=True)
def written_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


def make_point() -> type:
    @dataclasses.dataclass(frozen=True, slots=True, order=True)
    class Point:
        x: int
        y: tuple[int, ...] = dataclasses.field(default=(1,), compare=False)

    return Point


def compiled(file: Path) -> tuple[type, list[re.Pattern[Any]]]:
    """Return a class and patterns as they come with a cache in `file`."""
    re.purge()
    with ImportCache(file):
        return make_point(), [re.compile(text, flags) for text, flags in TEXTS]


def assert_as_ever(point: type, patterns: list[re.Pattern[Any]]) -> None:
    assert repr(point(2)) == "make_point.<locals>.Point(x=2, y=(1,))"
    assert point(1, (5,)) == point(1, (6,)) < point(2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point(1).x = 3
    re.purge()
    # Patterns are equal where their flags and their code are.
    assert patterns == [re.compile(text, flags) for text, flags in TEXTS]
    assert [each.groupindex for each in patterns] == [re.compile(*each).groupindex for each in TEXTS]


def test_what_comes_from_the_file_is_what_would_be_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kept"
    assert_as_ever(*compiled(file))
    before = file.read_bytes()
    monkeypatch.setattr(ImportCache, "_parse", None)  # and nothing is parsed the second time
    monkeypatch.setattr(import_cache, "compile", None, raising=False)
    found = compiled(file)
    monkeypatch.undo()
    assert_as_ever(*found)
    assert file.read_bytes() == before


def test_a_damaged_file_is_not_used_and_written_anew(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    compiled(file)
    good = file.read_bytes()
    for bad in (good[:-1], b"", good[:100] + b"x" + good[101:], b"\0" * len(good)):
        file.write_bytes(bad)
        assert_as_ever(*compiled(file))
        assert len(file.read_bytes()) == len(good)


def test_what_is_compiled_outside_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    cache = ImportCache(file)
    re.purge()
    with cache:
        re.compile("inside-of-imports")
    re.compile("a-policy's-own")
    with cache:
        re.compile("inside-again")
    assert b"inside-of-imports" in file.read_bytes()
    assert b"inside-again" in file.read_bytes()
    assert b"a-policy's-own" not in file.read_bytes()
    assert not hasattr(dataclasses, "exec")


def test_what_another_thread_compiles_meanwhile_is_not_kept(tmp_path: Path) -> None:
    made: list[type] = []

    def work() -> None:
        re.compile("a-policy's-own")
        made.append(make_point())

    re.purge()
    with ImportCache(tmp_path / "kept") as cache:
        other = threading.Thread(target=work)
        other.start()
        other.join()
        assert repr(made[0](1)).endswith("Point(x=1, y=(1,))")
        assert not cache._code
        re.compile("inside-of-imports")
    assert b"a-policy's-own" not in (tmp_path / "kept").read_bytes()


def test_an_import_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    before = re._compiler.compile  # type: ignore[attr-defined]
    with pytest.raises(ImportError), ImportCache(tmp_path / "kept"):
        raise ImportError
    assert re._compiler.compile is before  # type: ignore[attr-defined]
    assert not hasattr(dataclasses, "exec")


def test_nothing_is_written_where_python_keeps_no_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert_as_ever(*compiled(tmp_path / "kept"))
    assert not (tmp_path / "kept").exists()


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    assert_as_ever(*compiled(tmp_path / "there" / "is" / "none"))
    assert beside_bytecode(None) is None
    with ImportCache(None):
        assert not hasattr(dataclasses, "exec")


def test_a_file_of_many_versions_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kept"
    monkeypatch.setattr(import_cache, "MOST", 3)
    compiled(file)
    assert len(file.read_bytes()) < 100
    assert_as_ever(*compiled(file))


GATE = """
import re, sys
from pathlib import Path
from proxy.system.import_cache import ImportCache
sys.dont_write_bytecode = False
with ImportCache(Path(sys.argv[1])) as cache:
    import proxy.runtime.stdio_gate
kept = [(*key, cache._pattern(*key)) for key in cache._patterns]
re.purge()
assert all(re.compile(text, flags) == found for text, flags, found in kept)
print(len(kept))
"""


def test_every_pattern_of_the_gate_comes_back_as_it_is(tmp_path: Path) -> None:
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", GATE, str(tmp_path / "kept")],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(done.stdout) > 100
