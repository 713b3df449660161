"""Two-phase execution without I/O: hashing arguments, scoring a proposal, signing its commit token.

Keys, clock and store come from outside.
"""
