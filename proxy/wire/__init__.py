"""Bytes to messages and back, for every MCP revision and transport. Pure: no I/O."""
