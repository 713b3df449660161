"""Interlock: a transparent HTTP/MCP interception proxy."""

from proxy.resources import VERSION

__version__ = VERSION
