"""The server's own package, found from its command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.sandbox.server_package import package_of, roots_of

if TYPE_CHECKING:
    from pathlib import Path


def make(root: Path, *files: str) -> None:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_an_installed_script_brings_the_folder_of_all_packages(tmp_path: Path):
    make(tmp_path, "work/node_modules/@x/server/dist/index.js", "work/node_modules/@x/server/package.json")
    script = str(tmp_path / "work/node_modules/@x/server/dist/index.js")
    assert str(tmp_path / "work/node_modules") in package_of("/usr/bin/node", ["node", script], str(tmp_path), "/")


def test_a_checkout_brings_its_folder_and_never_the_home(tmp_path: Path):
    make(tmp_path, "work/pyproject.toml", "work/src/server.py", "server.py", "package.json")
    found = package_of("/usr/bin/python3", ["python3", str(tmp_path / "work/src/server.py")], str(tmp_path), "/")
    assert str(tmp_path / "work") in found
    alone = package_of("/usr/bin/python3", ["python3", str(tmp_path / "server.py")], str(tmp_path), "/")
    assert str(tmp_path) not in alone
    assert str(tmp_path / "server.py") in alone


def test_a_link_among_later_files_brings_nothing(tmp_path: Path):
    make(tmp_path, "elsewhere/real.json", "installed/server/main.py", "work/notes.json")
    (tmp_path / "work/data.json").symlink_to(tmp_path / "elsewhere/real.json")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/server").symlink_to(tmp_path / "installed/server/main.py")
    words = ["python3", str(tmp_path / "bin/server"), "data.json", "notes.json"]
    found = package_of("/usr/bin/python3", words, str(tmp_path), str(tmp_path / "work"))
    assert str(tmp_path / "installed/server") in found
    assert str(tmp_path / "work/notes.json") in found
    assert not [path for path in found if "elsewhere" in path or path.endswith("data.json")]


def test_what_the_server_could_have_chosen_brings_nothing_outside_of_what_it_writes(tmp_path: Path):
    make(tmp_path, "all/package.json", "all/work/src/main.py", "all/work/sub/pyproject.toml", "all/work/sub/main.py")
    make(tmp_path, "elsewhere/main.py", "elsewhere/pyproject.toml")
    work = tmp_path / "all" / "work"
    (work / "linked").symlink_to(tmp_path / "elsewhere")
    (work / "link.py").symlink_to(tmp_path / "elsewhere" / "main.py")

    def found(*words: str, writable: tuple[str, ...] = (str(work),)) -> set[str]:
        paths = package_of("/usr/bin/python3", ["python3", *words], str(tmp_path), str(work), writable)
        return {path for path in paths if path.startswith(str(tmp_path))}

    assert found("src/main.py") == {f"{work}/src/main.py"}
    assert found("src/main.py", writable=()) == {f"{work}/src/main.py", f"{tmp_path}/all"}
    assert found("sub/main.py") == {f"{work}/sub/main.py", f"{work}/sub"}
    assert found("link.py") == found("linked/main.py") == set()
    # What it cannot change is its owner's word.
    outside = str(tmp_path / "elsewhere" / "main.py")
    assert found(outside, "linked/main.py") == {outside, f"{tmp_path}/elsewhere"}


def test_a_virtual_environment_brings_itself(tmp_path: Path):
    make(tmp_path, "venv/bin/python", "bin/tool")
    assert str(tmp_path / "venv") in package_of(str(tmp_path / "venv/bin/python"), ["python"], str(tmp_path), "/")
    assert str(tmp_path) not in package_of(str(tmp_path / "bin/tool"), ["tool"], str(tmp_path), "/")


def test_roots_are_the_folders_of_the_command_line(tmp_path: Path):
    make(tmp_path, "a/x", "b/x")
    home = str(tmp_path)
    assert roots_of(["server", str(tmp_path / "a"), "--flag", "b"], home, home) == (f"{home}/a", f"{home}/b")
    assert roots_of(["server"], home, f"{home}/a") == (f"{home}/a",)
    assert roots_of(["server"], home, home) == ()
    (tmp_path / "a" / "stdio").symlink_to(tmp_path / "b")
    assert roots_of(["server", "stdio"], home, f"{home}/a") == (f"{home}/a",)
    assert roots_of(["server", f"{home}/b", "stdio"], home, f"{home}/a") == (f"{home}/b",)
    assert roots_of(["server", "a/stdio"], home, home) == (f"{home}/a/stdio",)  # a home is never a server's to write


def test_a_script_brings_the_interpreter_that_its_first_line_names(tmp_path: Path):
    make(tmp_path, "base/bin/python3", "venv/bin/x")
    (tmp_path / "venv/bin/python").symlink_to(tmp_path / "base/bin/python3")
    script = tmp_path / "venv/bin/server"
    script.write_text(f"#!{tmp_path}/venv/bin/python -s\nimport x\n")
    found = package_of(str(script), ["server"], str(tmp_path), "/")
    assert {str(tmp_path / "venv"), str(tmp_path / "base"), str(tmp_path / "base/bin/python3")} <= set(found)
    script.write_bytes(b"\x7fELF\xff\xfe")
    assert str(tmp_path / "base") not in package_of(str(script), ["server"], str(tmp_path), "/")
