"""Starts programs so that they end with their owner, and shuts processes into namespaces."""
