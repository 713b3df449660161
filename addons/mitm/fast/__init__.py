"""Replacements that are there for speed alone, behind the one switch `fast`.

Nothing here refuses, bounds or records anything of its own: with the switch off, all of that is still done by the
modules one level up, which these build on.
"""
