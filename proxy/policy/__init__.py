"""The policy room: rules, how they are loaded, and how a call is decided by them.

Pure but for `load`, which reads the files it is given.
"""
