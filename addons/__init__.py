"""mitmproxy glue: flows in, verdicts out. Decisions live in `proxy`, never here."""
