"""Sends an agent through the proxy: environment variables and MCP client configuration files. Pure: no I/O."""
