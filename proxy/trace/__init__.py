"""Reads strace output: which system calls a local server made, and for which MCP call."""
