"""Parse bytes into MCP messages and encode them back, for every revision and transport. Pure: no I/O."""
