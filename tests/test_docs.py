"""The documentation says what the code says: every setting, reason code and command has its heading."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.config import Settings
from proxy.core.reasons import REASONS
from scripts import pictures, screenshots
from tests.runtime.test_health_report import World
from tests.support.command_tree import commands, options

DOCS = Path(__file__).resolve().parent.parent / "docs"


def sections(name: str) -> dict[str, str]:
    """Return the text under each second-level heading of a page."""
    parts = re.split(r"^## (.+)\n", (DOCS / name).read_text(), flags=re.MULTILINE)
    headings = parts[1::2]
    assert len(headings) == len(set(headings))
    return dict(zip(headings, parts[2::2], strict=True))


SETTINGS, CODES, COMMANDS = sections("settings.md"), sections("reason-codes.md"), sections("commands.md")
NO_COMMANDS = {"Output", "Shell completion"}


def test_settings_and_headings_are_the_same_in_the_same_order() -> None:
    assert list(SETTINGS) == list(Settings.model_fields)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_a_settings_section_has_what_it_is_its_flag_and_its_variable(name: str) -> None:
    text = SETTINGS[name]
    assert str(Settings.model_fields[name].description) in text
    assert f"`--{name.replace('_', '-')}`" in text
    assert f"`INTERLOCK_{name.upper()}`" in text


@pytest.mark.parametrize("name", Settings.model_fields)
def test_a_settings_section_has_its_default(name: str) -> None:
    default = Settings.model_fields[name].default
    said = re.search(r"Default: `([^`]+)`", SETTINGS[name])
    if said is None:
        assert default in (None, ()) or Settings.model_fields[name].default_factory is not None
    elif Settings.model_fields[name].default_factory is None:
        value = json.loads(said[1]) if said[1].startswith("[") else said[1]
        assert getattr(Settings(**{name: value}), name) == default


def test_reason_codes_and_headings_are_the_same_in_the_same_order() -> None:
    assert list(CODES) == list(REASONS)


@pytest.mark.parametrize("code", REASONS)
def test_a_reasons_section_has_meaning_advice_and_whether_to_try_again(code: str) -> None:
    text, reason = CODES[code], REASONS[code]
    assert reason.meaning in text
    assert reason.advice in text
    assert ("Retryable." in text) is reason.retryable


def test_commands_and_headings_are_the_same() -> None:
    assert set(COMMANDS) - NO_COMMANDS == set(commands())


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - NO_COMMANDS))
def test_a_commands_section_has_an_example_with_options_there_are(name: str) -> None:
    examples = re.findall(r"```sh\n(.*?)```", COMMANDS[name], re.DOTALL)
    lines = [line for block in examples for line in block.splitlines()]
    assert any(name in line for line in lines)
    known = {*options(name), "-n"}
    for option in re.findall(r"(?<!\S)--[a-z-]+", " ".join(lines)):
        assert option in known


def test_the_tests_that_the_threat_model_names_are_there() -> None:
    named = set(re.findall(r"`(tests/[\w/.]+)`", (DOCS / "threat-model.md").read_text()))
    assert len(named) > 20
    assert [path for path in sorted(named) if not (DOCS.parent / path).exists()] == []


PAGES = sorted([*DOCS.glob("*.md"), *(page for page in DOCS.parent.glob("*.md") if page.name != "CHANGELOG.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_source_files_that_a_page_names_are_there(page: Path) -> None:
    # All but the changelog, which names files of earlier versions.
    folders = "proxy|addons|tests|scripts|bench|deploy|policies|examples"
    named = set(re.findall(rf"`((?:{folders})/[\w/.-]+\.\w+)`", page.read_text()))
    assert [path for path in sorted(named) if not (DOCS.parent / path).exists()] == []


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", sorted([*DOCS.glob("*.md"), *DOCS.parent.glob("*.md")]), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", page.read_text()):
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), link
        assert not anchor or file.suffix != ".md" or anchor in anchors(file), link


def test_every_metric_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DOCS / "operations.md").read_text()
    world = World(tmp_path, monkeypatch)
    told = {line.split()[2] for line in world.ask("/metrics")[1].splitlines() if line.startswith("# TYPE")}
    assert len(told) > 20
    assert {name for name in told if f"`{name}" not in page} == set()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make docs` does: strict, so that a broken link, anchor or page without a place fails."""
    folder = tmp_path_factory.mktemp("site")
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=DOCS.parent, env=env, capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_has_every_page_and_its_search_works_without_a_server(site: Path) -> None:
    pages = {page.stem for page in DOCS.glob("*.md")} - {"README"}
    assert {page for page in pages if not (site / f"{page}.html").exists()} == set()
    assert (site / "repository" / "SECURITY.html").exists()
    assert (site / "search" / "search_index.js").exists()


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=\"?((?:https?:)?//[^\s\">]+)")
    assert {url for page in site.rglob("*.html") for url in loaded.findall(page.read_text())} == set()
    styles = "".join(style.read_text() for style in site.rglob("*.css"))
    assert re.findall(r"url\([\"']?(?:https?:)?//|@import", styles) == []


def test_the_pictures_of_the_console_are_small_and_each_is_used() -> None:
    pages = "".join(page.read_text() for page in PAGES)
    taken = sorted(pictures.FOLDER.glob("console-*.png"))
    assert {picture.stem.removeprefix("console-") for picture in taken} == set(screenshots.SHOTS)
    assert [picture.name for picture in taken if picture.stat().st_size > screenshots.MAX_BYTES] == []
    assert [picture.name for picture in taken if f"pictures/{picture.name}" not in pages] == []


def test_the_pictures_are_current_and_fetch_nothing() -> None:
    assert pictures.main(["--check"]) == 0, "run python scripts/pictures.py"
    for picture in pictures.FOLDER.glob("*.svg"):
        assert picture.read_text().count("http") == 1, "its namespace is all it names"
