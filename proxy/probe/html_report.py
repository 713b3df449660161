"""A probe's report as one HTML page that needs nothing else. Pure.

Takes the report as JSON, masked already. All of it comes from a server that is not trusted: every text is escaped,
and the page's own policy lets no script run and loads nothing.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxy.core.model import JsonObject

_STYLE = """
:root { color-scheme: light dark; --line: #d8dde3; --quiet: #5b6672; --high: #b42318; --info: #8a6100; --fine: #1a7f37;
        --card: #fff; --page: #f5f7f9; --text: #16202a; --code: #f0f3f6 }
@media (prefers-color-scheme: dark) { :root { --line: #333c46; --quiet: #9aa7b4; --high: #ff8a7d; --info: #e3b341;
        --fine: #57c26f; --card: #1b222a; --page: #12171d; --text: #e4e9ee; --code: #11161b } }
* { box-sizing: border-box }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, sans-serif }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1rem 4rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem }
.quiet { color: var(--quiet) } code, pre { font: 13px/1.5 ui-monospace, monospace }
article, .tool { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem;
        margin: .6rem 0 }
article.high { border-left: 5px solid var(--high) } article.info { border-left: 5px solid var(--info) }
article h3, .tool h3 { margin: 0; font-size: 1rem } .high b { color: var(--high) } .info b { color: var(--info) }
pre { background: var(--code); padding: .6rem; margin: .5rem 0 0; border-radius: 6px; overflow-x: auto;
        white-space: pre-wrap; overflow-wrap: anywhere }
p { margin: .3rem 0; overflow-wrap: anywhere }
dl { display: grid; grid-template-columns: 7rem 1fr; gap: .2rem .8rem; margin: .4rem 0 0 } dt { color: var(--quiet) }
dd { margin: 0; overflow-wrap: anywhere } .sums { display: flex; gap: 1.5rem; margin: 1rem 0 }
.sums span { font-size: 1.6rem; font-weight: 600; margin-right: .4rem }
.sums .high span { color: var(--high) } .sums .info span { color: var(--info) } .sums .fine span { color: var(--fine) }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def html_report(report: JsonObject) -> str:
    """Return the page."""
    server, found = report["server"], report["findings"]
    name = escape(str(server["name"]))
    counts = {level: sum(each["severity"] == level for each in found) for level in ("high", "info")}
    command = " ".join(map(str, server.get("command") or [server.get("url", "")]))
    parts = [
        f"<h1>{name}</h1>",
        f"<p class=quiet>Probed by Interlock: <code>{escape(command)}</code></p>",
        _sums(counts, len(report["tools"])),
        *(f"<p><b>{escape(str(report[key]))}</b></p>" for key in ("problem", "note") if report.get(key)),
        "<h2>Findings</h2>",
        *(map(_finding, found) if found else ["<p>None.</p>"]),
        *(["<h2>Accepted by the allow list</h2>", *map(_finding, report["allowed"])] if report["allowed"] else []),
        "<h2>Tools</h2>",
        *map(_tool, report["tools"]),
        f"<div class=tool><h3>Start and end</h3><dl>{_row('did', _observed(report['startup']))}</dl></div>",
    ]
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        f'<meta http-equiv=Content-Security-Policy content="{_POLICY}">'
        '<meta name=viewport content="width=device-width">'
        f"<title>Probe of {name}</title><style>{_STYLE}</style><main>{''.join(parts)}</main></html>\n"
    )


def _sums(counts: dict[str, int], tools: int) -> str:
    def shown(kind: str, number: int, word: str) -> str:
        return f"<div class={kind}><span>{number}</span>{word}</div>"

    high = shown("high" if counts["high"] else "fine", counts["high"], "high")
    info = shown("info" if counts["info"] else "fine", counts["info"], "info")
    return f"<div class=sums>{high}{info}{shown('quiet', tools, 'tools')}</div>"


def _finding(found: JsonObject) -> str:
    severity = "high" if found["severity"] == "high" else "info"
    tools = ", ".join(escape(str(tool)) for tool in found["tools"] if tool is not None) or "start and end"
    lines = "\n".join(escape(str(line)) for line in found["evidence"])
    reason = f"<p>Accepted: {escape(str(found['reason']))}</p>" if "reason" in found else ""
    evidence = f"<pre>{lines}</pre>" if lines else ""
    return (
        f"<article class={severity}><h3><b>{severity.upper()}</b> {escape(found['rule'])} "
        f"<span class=quiet>{tools}</span></h3><p>{escape(found['message'])}</p>{reason}{evidence}</article>"
    )


def _tool(tool: JsonObject) -> str:
    declared = tool["declared"]
    names = {"read_only": "read-only", "network": "network", "executes": "starts programs"}
    said = ", ".join(word for key, word in names.items() if declared.get(key)) or "nothing beyond its arguments"
    outcomes = [str(call["outcome"]) for call in tool["calls"]]
    calls = ", ".join(f"{outcomes.count(each)} {escape(each)}" for each in dict.fromkeys(outcomes)) or "not called"
    rows = _row("declares", said) + _row("did", _observed(tool["observed"])) + _row("calls", calls)
    return f"<div class=tool><h3>{escape(str(tool['name']))}</h3><dl>{rows}</dl></div>"


def _row(name: str, value: str) -> str:
    return f"<dt>{name}</dt><dd>{value}</dd>"


def _observed(seen: JsonObject) -> str:
    parts: Iterable[str] = (f"{escape(kind)}{_targets(what)}" for kind, what in seen.items())
    return "; ".join(parts) or "nothing outside its own process"


def _targets(what: Any) -> str:
    targets = what.get("targets") or []
    return f" ({', '.join(escape(str(each)) for each in targets[:8])})" if targets else f" ({what['count']} times)"
