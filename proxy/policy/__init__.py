"""Policies: the rules, how they are loaded from YAML, and how they decide a call.

Pure except `load`, which reads the files it is given, and `reloader`, which watches them.
"""
