"""What a server was when it was last accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.errors import ConfigError
from proxy.probe.baseline import FOLDER, ServerBaseline, command_key, load, save

KNOWN = ServerBaseline({"a": {"name": "a"}}, {"a": {"net.connect": ["x"]}, "": {}})


def test_what_is_saved_is_found_again(tmp_path: Path) -> None:
    save(tmp_path, "server", KNOWN)
    assert load(tmp_path, "server") == KNOWN
    assert load(tmp_path, "another") is None


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    save(tmp_path, "server", KNOWN)
    (file,) = (tmp_path / FOLDER).iterdir()
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tools": 1, "profiles": {}}'])
def test_what_cannot_be_read_is_told_and_never_taken_for_nothing(tmp_path: Path, text: str) -> None:
    save(tmp_path, "server", KNOWN)
    (file,) = (tmp_path / FOLDER).iterdir()
    file.write_text(text)
    with pytest.raises(ConfigError, match="delete it to begin anew"):
        load(tmp_path, "server")


def test_two_servers_of_one_name_are_told_apart_by_their_commands(tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "server.py", tmp_path / "b" / "server.py"
    for file in (one, other):
        file.parent.mkdir()
        file.write_text("")
    keys = {command_key("server", ["python", str(file)]) for file in (one, other)}
    assert len(keys) == 2
    assert command_key("server", ["python", str(one)]) == command_key(
        "server", ["python", f"{tmp_path}/b/../a/server.py"]
    )


def test_another_version_of_a_package_is_compared_with_the_last() -> None:
    def key(*words: str) -> str:
        return command_key("s", list(words))

    assert key("npx", "-y", "@scope/server@1.0.0", "{home}") == key("npx", "-y", "@scope/server@2.0.0", "{home}")
    assert key("uvx", "server==1") == key("uvx", "server==2")
    assert key("npx", "server", "--user", "a") != key("npx", "server", "--user", "b")
    assert key("https://a.example/mcp") != key("https://b.example/mcp")
