"""mkdocs hook: pages link to files of the repository outside docs/; put those files into the site as well.

On GitHub `../docker-compose.yml` leads to the file. In the site the same link leads to a page that shows it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "repository"
SHIM = re.compile(r"https://[^\"']+/iframe-worker/shim")
PAGES = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^(\s*```sh) no-run:.*$", re.MULTILINE)
LANGUAGES = {".yml": "yaml", ".yaml": "yaml", ".sql": "sql", ".service": "ini", ".py": "python"}


def on_files(files: Files, config: Any) -> Files:
    """Add the project's own pages, and a page for each file of the repository that a page links to."""
    sources = {name: (ROOT / name).read_text() for name in PAGES}
    sources |= {f"docs/{page.name}": page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))}
    for name in PAGES:
        files.append(File.generated(config, f"{FOLDER}/{name}", content=sources[name]))
    for target in sorted({target for name, text in sources.items() for target in _outside(name, text)}):
        language = LANGUAGES.get(Path(target).suffix, "text")
        content = f"# {target}\n\n````{language}\n{(ROOT / target).read_text()}````\n"
        page = File.generated(config, f"{FOLDER}/{target}.md", content=content, inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to the repository's files to their pages; drop the tests' marks from shell blocks."""
    path = str(page.file.src_uri)
    name = path.removeprefix(f"{FOLDER}/") if path.startswith(f"{FOLDER}/") else f"docs/{path}"

    def replaced(link: re.Match[str]) -> str:
        target = _resolve(name, link[2])
        if (ROOT / target).is_dir():
            return link[1]  # a folder has no page; its name is enough
        within = _page_of(target)
        return f"[{link[1]}]({posixpath.relpath(within, posixpath.dirname(path) or '.')}{link[3] or ''})"

    return FENCE.sub(r"\1", LINK.sub(replaced, markdown))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load the search's helper from the site itself, in place of the CDN that the theme names."""
    return SHIM.sub(get_relative_url("site/iframe-worker.js", page.url), output)


def on_post_template(output_content: str, **_: Any) -> str:
    """Do the same for pages that are no document, such as 404.html; these are served from the root."""
    return SHIM.sub("/site/iframe-worker.js", output_content)


def _resolve(name: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), link))


def _page_of(target: str) -> str:
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return f"{FOLDER}/{target}" if target in PAGES else f"{FOLDER}/{target}.md"


def _outside(name: str, text: str) -> set[str]:
    targets = {_resolve(name, link[2]) for link in LINK.finditer(text)}
    return {each for each in targets if not each.startswith("docs/") and each not in PAGES and (ROOT / each).is_file()}
