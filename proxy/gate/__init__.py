"""Decides every MCP message, alike for HTTP, WebSocket and stdio: read, decide, redact, record, forward or refuse."""
