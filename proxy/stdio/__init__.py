"""Runs a local MCP server: passes its stdin and stdout through the gate, and ends it when its client is gone."""
