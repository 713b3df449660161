"""Interlock: a transparent HTTP/MCP interception proxy."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("mcp-interlock")
except PackageNotFoundError:  # a checkout on sys.path that was never installed
    __version__ = "0+unknown"
