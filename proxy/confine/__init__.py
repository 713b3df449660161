"""Puts an agent where the only way out is the proxy."""
