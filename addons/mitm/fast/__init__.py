"""Replacements that are there for speed alone."""
