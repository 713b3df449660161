"""Pages are escaped, whatever they show; files are those of static/ alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import UndefinedError

from proxy.console.render import FOLDER, Assets, Renderer, clock_time, iso_time, size

HOSTILE = "<img src=x onerror=alert(1)>'\"\u202e"


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(Assets())


def test_values_are_escaped_and_visible(renderer: Renderer) -> None:
    template = renderer._environment.from_string("<b title='{{ x }}'>{{ x }}</b>{{ {'a': x} | pretty }}")
    shown = template.render(x=HOSTILE)
    assert shown.count("<") == 2
    assert "\u202e" not in shown
    assert shown.count("'") == 2


def test_a_name_that_is_not_there_is_an_error_and_not_nothing(renderer: Renderer) -> None:
    with pytest.raises(UndefinedError):
        renderer._environment.from_string("{{ nothing }}").render()


def test_only_files_of_the_folder_are_served_and_may_be_kept() -> None:
    assets = Assets()
    answer = assets.answer(assets.version, "console.css")
    assert answer.status_code == 200
    assert "immutable" in answer.headers["cache-control"]
    for version, name in ((assets.version, "../app.py"), ("0" * 12, "console.css"), (assets.version, "none.js")):
        assert assets.answer(version, name).status_code == 404
    with pytest.raises(KeyError):
        assets.url("none.js")


def test_a_changed_file_has_another_address(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("1")
    before = Assets(tmp_path).url("a.js")
    (tmp_path / "a.js").write_text("2")
    assert Assets(tmp_path).url("a.js") != before


TEMPLATES = sorted((FOLDER / "templates").glob("*.html"))
SCRIPTS = sorted((FOLDER / "static").glob("*.js"))


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.name)
def test_no_template_has_anything_inline_or_unescaped(file: Path) -> None:
    text = file.read_text()
    for forbidden in ("| safe", "|safe", "autoescape", "Markup", " style=", " onclick", " onload", "javascript:"):
        assert forbidden not in text
    assert "<script>" not in text
    assert "//" not in text.replace("https://", "").replace("http://", "") or 'src="//' not in text


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: file.name)
def test_no_script_turns_text_into_markup_or_code(file: Path) -> None:
    text = file.read_text()
    for forbidden in (
        *("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(", "new Function"),
        *("createContextualFragment", "setHTML", "srcdoc", "createPolicy", "http://", "https://"),
    ):
        assert forbidden not in text


def test_times_and_sizes() -> None:
    assert iso_time(0.5) == "1970-01-01T00:00:00.500Z"
    assert clock_time(3661.007) == "01:01:01.007"
    assert iso_time(1e300).startswith("9999-")
    assert iso_time(-5) == "1970-01-01T00:00:00.000Z"
    assert [size(n) for n in (10, 2048, 3 << 20)] == ["10 B", "2.0 kB", "3.0 MB"]
