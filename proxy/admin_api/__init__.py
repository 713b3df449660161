"""The operators' side: an API on a socket of its own, where agents and the proxy's traffic never come."""
