"""The scan finds what it is for, and nothing else."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.value_scan import files_below, holds, in_files, make_value

VALUE = make_value().encode()
HERE = str(Path(__file__).parents[2])


@pytest.mark.parametrize(
    "data",
    [
        VALUE,
        b"0" + VALUE + b"0",
        VALUE.hex().encode(),
        VALUE.decode().encode("utf-16-le"),
        VALUE.decode().encode("utf-16-be"),
        *(base64.b64encode(bytes(n) + VALUE + b"end") for n in range(3)),
        base64.b64encode(b"Bearer " + VALUE).rstrip(b"="),
        b"xx" + base64.urlsafe_b64encode(b"login:" + VALUE),
    ],
)
def test_it_is_found_in_every_form(data: bytes) -> None:
    assert holds(b"before " + data + b" after")


def test_nothing_else_is_taken_for_it() -> None:
    assert not holds(VALUE[:-1])
    assert not holds(VALUE, "another key")
    assert holds(make_value("a key").encode(), "a key")
    assert not holds(VALUE[:-1] + (b"0" if VALUE[-1:] != b"0" else b"1"))
    assert not holds(os.urandom(1 << 16).hex().encode())


def test_files_and_memory_are_searched(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "has").write_bytes(b"x" * 5000 + VALUE)
    (tmp_path / "in" / "has not").write_bytes(b"x")
    (tmp_path / "in" / "link").symlink_to("/etc")
    names = list(files_below([str(tmp_path)], 0))
    assert sorted(Path(name).name for name in names) == ["has", "has not"]
    assert list(files_below([str(tmp_path)], 0, deep=0)) == []
    assert len(list(files_below([f"{tmp_path}/"], 0, deep=1))) == 2
    assert in_files(names) == [str(tmp_path / "in" / "has")]
    assert list(files_below([str(tmp_path)], (tmp_path / "in" / "has not").stat().st_ctime + 60)) == []


@pytest.mark.parametrize("has", [True, False])
def test_a_program_finds_it_in_its_own_memory_alone_where_it_has_it(has: bool) -> None:
    code = (
        f"import sys; sys.path.insert(0, {HERE!r}); from tests.support.value_scan import in_memory, make_value\n"
        f"kept = make_value() if {has} else None\nprint(*in_memory('self'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    found, size = done.stdout.split()
    assert (found, int(size) > 1 << 20) == (str(has), True)
