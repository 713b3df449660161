"""Runs a local MCP server: starts it, passes its stdio through the gate, and ends it with all its processes."""
