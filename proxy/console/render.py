"""Pages from templates. Whatever a template shows is escaped, and every character of it visible."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response

from proxy.console.security import NO_STORE
from proxy.console.text import pretty, preview, visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

FOLDER: Final = Path(__file__).parent
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Assets:
    """The files of static/, read once. Their address has their content's hash, so that browsers may keep them."""

    def __init__(self, folder: Path = FOLDER / "static") -> None:
        self._files = {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix in _TYPES}
        digest = hashlib.sha256()
        for name in sorted(self._files):
            digest.update(name.encode() + b"\0" + self._files[name] + b"\0")
        # One version for all: modules import each other by relative names.
        self.version = digest.hexdigest()[:12]

    def url(self, name: str) -> str:
        if name not in self._files:
            raise KeyError(name)
        return f"/static/{self.version}/{name}"

    def answer(self, version: str, name: str) -> Response:
        content = self._files.get(name)
        if content is None or version != self.version:
            return Response("Not found.", 404, media_type="text/plain")
        kept = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(content, headers=kept, media_type=_TYPES[Path(name).suffix])


class Renderer:
    def __init__(self, assets: Assets) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            # A misspelt name must not show as nothing.
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            # What is shown by `{{ }}` is text from agents and servers more often than not.
            finalize=_finalize,
        )
        self._environment.filters |= {
            "pretty": pretty,
            "preview": preview,
            "iso": iso_time,
            "clock": clock_time,
            "size": size,
            "number": number,
            "raw_text": raw_text,
            "duration": duration,
        }
        self._environment.globals["asset"] = assets.url

    def page(self, request: Request, template: str, values: Mapping[str, Any], status: int = 200) -> HTMLResponse:
        """Return a page. Templates have `me`: the session's operator, role and CSRF token; None before the login."""
        state = request.state
        context = {"me": state.me, "base": state.base, "path": request.url.path, "pages": state.pages, **values}
        text = self._environment.get_template(template).render(context)
        return HTMLResponse(text, status, headers=dict(NO_STORE))

    def part(self, template: str, **values: Any) -> str:
        return self._environment.get_template(template).render(values)


def _finalize(value: Any) -> Any:
    # Markup was made by a template or a macro; its values have been through here.
    return value if hasattr(value, "__html__") else visible(value, lines=True)


def iso_time(seconds: float) -> str:
    """Return a time as HTML's `<time datetime>` has it; the browser shows it in its own time zone."""
    return _utc(seconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock_time(seconds: float) -> str:
    """Return a time of day with milliseconds, in UTC."""
    return f"{_utc(seconds):%H:%M:%S}.{int(seconds * 1000) % 1000:03d}"


def size(number: int) -> str:
    """Return a number of bytes for people."""
    for unit, factor in (("MB", 1 << 20), ("kB", 1 << 10)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number} B"


def raw_text(text: str) -> Markup:
    """Return a text for an editor, escaped, with every character as it is: it must come back the same."""
    return escape(text)


def number(value: float) -> str:
    """Return a number for people: whole ones with their thousands apart, small ones with what matters of them."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def duration(milliseconds: float | None) -> str:
    """Return how long something took."""
    if milliseconds is None:
        return "none"
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.2f} s"
    return f"{milliseconds:.0f} ms" if milliseconds >= 100 else f"{milliseconds:.1f} ms"


@functools.cache
def _epoch() -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _utc(seconds: float) -> dt.datetime:
    # A clock may have been wrong when an event was recorded; a page must show it all the same.
    return _epoch() + dt.timedelta(seconds=min(max(seconds, 0.0), 253_402_300_799.0))
