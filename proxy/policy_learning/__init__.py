"""Least-privilege rules from recorded calls, and what a candidate policy allows that another denies. Pure, no I/O."""
