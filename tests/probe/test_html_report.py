"""The report as a page: everything in it is escaped, and nothing in it runs."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from proxy.probe.declared_scope import DeclaredScope
from proxy.probe.findings import ProbeFinding
from proxy.probe.html_report import html_report
from proxy.probe.report import CallResult, ProbeReport, ToolReport

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def report(text: str) -> dict[str, Any]:
    found = ProbeFinding(text, "canary-read", "high", "fs.read", text, (text,), (text,), (text,))
    tool = ToolReport(text, DeclaredScope(), {"fs.read": {"count": 1, "targets": [text]}}, (CallResult("all", "ok"),))
    server = {"name": text, "command": [text], "transport": "stdio"}
    return ProbeReport(server, (tool,), {}, (found,), {}, problem=text, note=text, allowed=((found, text),)).data()


def test_what_a_server_says_is_text_and_nothing_else() -> None:
    page = html_report(report(EVIL))
    tags = Tags()
    tags.feed(page)
    assert not {"script", "img", "iframe", "a", "link", "form"} & {tag for tag, _ in tags.seen}
    assert not any(name.startswith("on") for _, attrs in tags.seen for name in attrs)
    assert page.count("&lt;script&gt;") >= 8
    policy = next(attrs["content"] for tag, attrs in tags.seen if attrs.get("http-equiv"))
    assert "default-src 'none'" in str(policy)


def test_a_page_has_the_findings_and_the_tools() -> None:
    page = html_report(report("format_note"))
    assert "HIGH" in page
    assert "canary-read" in page
    assert "Accepted by the allow list" in page
    assert "fs.read (format_note)" in page
