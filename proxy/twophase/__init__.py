"""The two-phase room: hashing a call's arguments, scoring a proposal, signing its commit token.

Pure: no I/O. Keys, clock and store come from outside.
"""
